"""The run's state in one word, and when it ended."""

import numpy as np

from rankscope.hub.diagnose import endings
from rankscope.hub.liveness import live
from rankscope.hub.stall import has_stepped, stalled_s
from rankscope.hub.state import RunState
from rankscope.protocol.shapes import State


def run_state(state: RunState, now_s: float) -> State:
    """``starting``, ``running``, ``stalled``, ``finished`` or ``failed``."""
    if state.run_end is not None:
        in_order = state.run_end.exit_code == 0 and not state.run_end.signal
        return "finished" if in_order else "failed"
    if not state.ranks.heard().any():
        return "failed" if endings.bad_ends(state, now_s).any() else "starting"
    if not live(state).any():
        return "failed" if endings.ended_badly(state, now_s) else "finished"
    if stalled_s(state, now_s) is not None:
        return "stalled"
    return "running" if has_stepped(state) else "starting"


def ended_s(state: RunState) -> float | None:
    """When the run ended, hub clock: its launcher's word, else its last rank's end; else None."""
    if state.run_end_s is not None:
        return state.run_end_s
    return last_rank_ended_s(state)


def last_rank_ended_s(state: RunState) -> float | None:
    """When the last of this attempt's ranks ended; None while one lives or none was heard."""
    ranks = state.ranks
    over = ranks.over()
    if not over.any() or live(state).any():
        return None
    ends_s = np.fmax(ranks.goodbye_s[over], ranks.ended_s[over])
    return float(np.nanmax(ends_s))
