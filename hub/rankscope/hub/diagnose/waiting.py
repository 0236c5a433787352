"""Ranks that are alive and do not move: whoever keeps them waiting, they are its victims."""

from collections.abc import Sequence

import numpy as np

from rankscope.hub.liveness import live
from rankscope.hub.state import RunState

MIN_WAIT_S = 1.0
WAIT_STEPS = 3.0


def not_advancing(state: RunState, now_s: float, culprits: Sequence[int]) -> list[int]:
    """Live ranks but ``culprits`` that changed no phase for 1 s and three of their steps."""
    waiting = live(state)
    size = len(waiting)
    ranks = state.ranks
    step_s = np.nan_to_num(ranks.step_s[:size], nan=0.0)
    patience_s = np.maximum(MIN_WAIT_S, WAIT_STEPS * step_s)
    waiting &= now_s - ranks.moved_s[:size] > patience_s
    waiting[[rank for rank in culprits if rank < size]] = False
    return np.flatnonzero(waiting).tolist()
