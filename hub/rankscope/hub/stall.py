"""Whether the run as a whole has stopped moving."""

import numpy as np

from rankscope.hub.liveness import live
from rankscope.hub.state import RunState
from rankscope.hub.state.silence import LOST_S

MIN_PATIENCE_S = 10.0
PATIENCE_STEPS = 5.0

SETTLE_S = 1.0
"""So soon after it was away a hub has read what waited for it: that takes a tenth of it."""

EXPECTED_S = 600.0
"""What is declared to take long may take so long without any sign of life."""


def has_stepped(state: RunState) -> bool:
    """Whether a step was completed in this attempt; before that, long is normal (compilation)."""
    ranks = state.ranks
    return bool((ranks.heard() & (ranks.step > ranks.start_step)).any())


def patience_s(state: RunState) -> float:
    """How long nothing may move: five times the longest step since warm-up, at least 10 s.

    The first step is warm-up; it counts only while it is the only one there was.
    """
    ranks = state.ranks
    longest_s = ranks.longest_step_s
    if not (longest_s > 0).any():
        longest_s = ranks.first_step_s
    return max(MIN_PATIENCE_S, PATIENCE_STEPS * float(np.fmax.reduce(longest_s, initial=0.0)))


def stalled_s(state: RunState, now_s: float) -> float | None:
    """For how long no rank has moved, when that is longer than the run's patience.

    Moving is any change of phase, so an evaluation without steps moves. None while at least one
    rank moves, before the first step, while ranks stand at a boundary because an operator wants
    it, and once all have ended.
    """
    waiting = live(state)
    if not waiting.any() or not has_stepped(state):
        return None
    if any(rank < len(waiting) and waiting[rank] for rank in state.controls.held):
        return None  # an operator has the ranks stand at a boundary
    # Not nanmax, which takes as long as all the rest.
    moved_s = float(np.fmax.reduce(state.ranks.moved_s[: len(waiting)][waiting], initial=-np.inf))
    age_s = now_s - moved_s
    if state.progress.expecting and age_s <= EXPECTED_S:
        return None  # a rank is in something that takes long, and says so
    if not np.isfinite(age_s) or age_s <= patience_s(state):
        return None
    if now_s - state.away_until_s < SETTLE_S:
        return None  # what is read now was said while the hub was away, and may be long past
    if now_s - state.away_until_s < LOST_S:
        # The hub was away; whoever moved meanwhile has this long to say so.
        heard_s = state.ranks.heard_s[: len(waiting)][waiting]
        if (heard_s < state.away_until_s).any():
            return None
    return age_s
