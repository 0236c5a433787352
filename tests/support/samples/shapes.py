"""Every shape by the name of its golden document."""

from rankscope.protocol import shapes as s
from support.samples.run import DETAIL, DRILL, FINDING, INCIDENTS, OVERVIEW, RECORDING, STATUS
from support.samples.views import (
    ANALYSIS,
    CHECKPOINTS,
    COLLECTIVES,
    MEMORY_VIEW,
    NUMERICS,
    STACKS,
    STEPS,
)

SHAPES: dict[str, s.Shape | list[s.DrillRow]] = {
    "finding": FINDING,
    "status": STATUS,
    "overview": OVERVIEW,
    "rank": DETAIL,
    "incidents": INCIDENTS,
    "drill": [DRILL],
    "numerics": NUMERICS,
    "stacks": STACKS,
    "collectives": COLLECTIVES,
    "memory": MEMORY_VIEW,
    "checkpoints": CHECKPOINTS,
    "steps": STEPS,
    "recording": RECORDING,
    "analysis": ANALYSIS,
}
