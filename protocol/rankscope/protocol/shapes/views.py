"""Which views there are, and the shape of each."""

from rankscope.protocol.shapes.base import Shape
from rankscope.protocol.shapes.checkpoints import CheckpointsView
from rankscope.protocol.shapes.collectives import Collectives
from rankscope.protocol.shapes.incidents import Incidents
from rankscope.protocol.shapes.memory import MemoryView
from rankscope.protocol.shapes.numerics import Numerics
from rankscope.protocol.shapes.overview import Overview
from rankscope.protocol.shapes.ranks import RankDetail
from rankscope.protocol.shapes.recording import Recording
from rankscope.protocol.shapes.stacks import StacksView
from rankscope.protocol.shapes.status import Status
from rankscope.protocol.shapes.steps import StepsView

VIEWS: dict[str, type[Shape]] = {
    "status": Status,
    "overview": Overview,
    "rank": RankDetail,
    "incidents": Incidents,
    "numerics": Numerics,
    "stacks": StacksView,
    "collectives": Collectives,
    "memory": MemoryView,
    "checkpoints": CheckpointsView,
    "steps": StepsView,
    "recording": Recording,
}
"""The views this version serves. ``rank`` needs the argument ``rank``; ``numerics``, ``stacks``,
``collectives`` and ``steps`` take it."""
