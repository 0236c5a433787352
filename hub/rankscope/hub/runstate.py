"""The run's state in one word, and when it ended."""

import numpy as np

from rankscope.hub.diagnose import endings
from rankscope.hub.liveness import live
from rankscope.hub.outliving import launcher_ended, outlived
from rankscope.hub.stall import has_stepped, stalled_s
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import UNOBSERVED
from rankscope.protocol.shapes import State

ENDED: tuple[State, ...] = ("finished", "failed")


def run_state(state: RunState, now_s: float) -> State:
    """``starting``, ``running``, ``paused``, ``stalled``, ``finished`` or ``failed``."""
    if state.run_end is not None and launcher_ended(state, now_s):
        in_order = state.run_end.exit_code == 0 and not state.run_end.signal
        return "finished" if in_order else "failed"
    if not state.ranks.heard().any():
        return "failed" if endings.bad_ends(state, now_s).any() else "starting"
    if not live(state).any():
        if (state.ranks.goodbye == UNOBSERVED).any():
            return "running"
        if not endings.ended_badly(state, now_s):
            # Ended with 0: in order, if it has said so, and that may be behind the word of its end.
            return "running" if endings.may_tell(state, now_s).any() else "finished"
        again = state.launched and state.run_end is None
        return "starting" if again else "failed"
    if _paused(state):
        return "paused"
    if stalled_s(state, now_s) is not None:
        return "stalled"
    return "running" if has_stepped(state) else "starting"


def between_lives(state: RunState, now_s: float) -> bool:
    """Whether all ranks are gone and their launcher may start them again."""
    some = bool(state.ranks.heard().any()) and not live(state).any()
    return some and state.launched and run_state(state, now_s) == "starting"


def _paused(state: RunState) -> bool:
    rows = state.controls.rows
    over = state.ranks.over()
    return any(rows[rank].phase == "paused" and not over[rank] for rank in state.controls.held)


def ended_s(state: RunState, word: State) -> float | None:
    """When the run ended, hub clock; None while ``word``, its state, is none of an end.

    Its last rank's end, or its launcher's word where that came first and no rank outlived it.
    """
    if word not in ENDED:
        return None
    told_s = None if outlived(state).any() else state.run_end_s
    ends_s = (told_s, last_rank_ended_s(state))
    return min((end_s for end_s in ends_s if end_s is not None), default=None)


def as_of_s(state: RunState, word: State, now_s: float) -> float:
    """The moment of which views tell: now, or the run's end. What has ended ages no more."""
    end_s = ended_s(state, word)
    return now_s if end_s is None else min(now_s, end_s)


def exit_code(state: RunState) -> int | None:
    """What the launcher's command ended with, 128+n for a signal; None where none is known."""
    end = state.run_end
    if end is None:
        return None
    return 128 + end.signal if end.signal else end.exit_code


def last_rank_ended_s(state: RunState) -> float | None:
    """When the last of this attempt's ranks ended; None while one lives or none was heard."""
    ranks = state.ranks
    over = ranks.over()
    if not over.any() or live(state).any() or (ranks.goodbye == UNOBSERVED).any():
        return None
    # The goodbye is the end of its training; its interpreter may take a while to leave.
    ends_s = np.fmin(ranks.goodbye_s[over], ranks.ended_s[over])
    return float(np.nanmax(ends_s))
