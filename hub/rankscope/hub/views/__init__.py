"""What clients see: pure functions from the hub's knowledge to the shapes of the protocol.

One file a view; a new one is a line in ``VIEWS``.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from rankscope.hub.views.checkpoints import checkpoints
from rankscope.hub.views.collectives import collectives
from rankscope.hub.views.incidents import incidents
from rankscope.hub.views.knowledge import Knowledge, NoSuchView, run_step
from rankscope.hub.views.memory import memory
from rankscope.hub.views.numerics import numerics
from rankscope.hub.views.overview import overview
from rankscope.hub.views.rank import rank_detail
from rankscope.hub.views.stacks import stacks
from rankscope.hub.views.status import status
from rankscope.hub.views.steps import steps
from rankscope.protocol import messages as m
from rankscope.protocol import shapes

__all__ = ["VIEWS", "Knowledge", "NoSuchView", "encoded", "run_step", "view"]

View = Callable[[Knowledge, m.ViewRequest, float], shapes.Shape]
"""(what is known, what was asked, now). ``since`` is 0 when the client's version means nothing to
this hub. Raises :class:`NoSuchView` for a rank that is not there."""

VIEWS: dict[str, View] = {
    "status": status,
    "overview": overview,
    "rank": rank_detail,
    "incidents": incidents,
    "stacks": stacks,
    "collectives": collectives,
    "numerics": numerics,
    "memory": memory,
    "checkpoints": checkpoints,
    "steps": steps,
}


def view(know: Knowledge, request: m.ViewRequest, base: int, now_s: float) -> shapes.Shape:
    """The view a client asked for. ``base`` is the version with which this hub process began.

    Raises :class:`NoSuchView`.
    """
    make = VIEWS.get(request.view)
    if make is None:
        raise NoSuchView(f"there is no view {request.view!r}; there are {', '.join(VIEWS)}")
    if not base <= request.since <= know.state.version:
        request = msgspec.structs.replace(request, since=0)
    return make(know, request, now_s)


def encoded(shape: shapes.Shape) -> Any:
    """The body of a reply."""
    return msgspec.Raw(msgspec.msgpack.encode(shape))
