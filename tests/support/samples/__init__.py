"""One valid example of every message and every shape, as a hang and a death would leave them."""

from support.samples.messages import MESSAGES
from support.samples.run import FINDING, INCIDENTS, OVERVIEW, ROW, STATUS
from support.samples.shapes import SHAPES
from support.samples.views import ANALYSIS, MEMORY_VIEW, NUMERICS

__all__ = [
    "ANALYSIS",
    "FINDING",
    "INCIDENTS",
    "MEMORY_VIEW",
    "MESSAGES",
    "NUMERICS",
    "OVERVIEW",
    "ROW",
    "SHAPES",
    "STATUS",
]
