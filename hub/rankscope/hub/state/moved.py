"""When each rank moved last, whatever it was that moved: its phases, or its collectives."""

import math
from typing import TYPE_CHECKING

import numpy as np

from rankscope.hub.state.columns import Floats

if TYPE_CHECKING:
    from rankscope.hub.state.run import RunState


def moved_s(state: "RunState") -> Floats:
    """Of each rank, hub clock, shape (columns,); NaN: never."""
    ranks = state.ranks
    moved: Floats = np.fmax(ranks.moved_s, state.progress.moved_s[: len(ranks.moved_s)])
    return moved


def last_s(state: "RunState", rank: int) -> float:
    """When ``rank`` last went on, hub clock, also of one that has ended; NaN: never."""
    return float(np.fmax(state.ranks.moved_s[rank], state.progress.moved_s[rank]))


def moved_of_s(state: "RunState", rank: int) -> float:
    """When ``rank`` last went on, hub clock; NaN where that is not known, or was its end."""
    if state.ranks.over()[rank]:
        return math.nan
    return last_s(state, rank)
