"""Ranks that go on though their launcher's command has ended. Pure.

A launcher that ends by itself has ended its ranks before. One that is killed ends nobody, nor does
a script that leaves its training in the background. Such a run ends with its last rank.
"""

from signal import Signals

import numpy as np

from rankscope.hub.liveness import live
from rankscope.hub.state import RunState
from rankscope.hub.state.columns import Flags
from rankscope.hub.state.moved import moved_s

SIGHUP, SIGINT, SIGTERM = 1, 2, 15
ASKED_SIGNALS = (SIGHUP, SIGINT, SIGTERM)
"""How launchers, schedulers and people ask a process to end."""

AFTER_S = 3.0
"""What is seen of a rank so long after the command's end was no last word on its way."""
AFTER_KILL_S = 0.5
"""The same where the command was killed: a rank that was the command itself is gone by then."""
DOUBT_S = 3.0
"""So long after the command was killed it is not known yet whether its ranks are there."""


def was_killed(state: RunState) -> bool:
    """Whether the launcher's command had no time to end its ranks: it died of a signal, or is a
    script that tells so of what it waited for."""
    end = state.run_end
    if end is None:
        return False
    return bool(end.signal) or (end.exit_code > 128 and end.exit_code - 128 not in ASKED_SIGNALS)


def launcher_how(state: RunState) -> str:
    """How the launcher's command ended: ``died (SIGKILL)``, ``ended (exit 0)``."""
    end = state.run_end
    if end is None:
        return "has not ended"
    if not was_killed(state):
        return f"ended (exit {end.exit_code})"
    number = end.signal or end.exit_code - 128
    try:
        return f"died ({Signals(number).name})"
    except ValueError:
        return f"died (signal {number})"


def outlived(state: RunState) -> Flags:
    """Which ranks were seen to be there after the launcher's command had ended, whether or not they
    have ended since; shape (size,)."""
    ranks, size = state.ranks, state.size()
    if state.run_end_s is None:
        return np.zeros(size, dtype=np.bool_)
    after_s = state.run_end_s + (AFTER_KILL_S if was_killed(state) else AFTER_S)
    last_s = np.fmax(np.fmax(ranks.alive_s, moved_s(state)), ranks.ended_s)[:size]
    # By when it came, and not when it was sent: on a busy machine that may be seconds later.
    heard: Flags = ranks.heard_s[:size] > state.run_end_s + AFTER_S
    heard |= last_s > after_s  # false for NaN
    return heard


def goes_on(state: RunState, now_s: float) -> bool:
    """Whether the launcher's command has ended, and that is not the end of the run: ranks have
    outlived it, or, shortly after it was killed, may have."""
    if state.run_end_s is None:
        return False
    if outlived(state).any():
        return True
    doubt = was_killed(state) and now_s - state.run_end_s <= DOUBT_S
    return doubt and bool(live(state).any())


def launcher_ended(state: RunState, now_s: float) -> bool:
    """Whether the launcher's command has ended, and the run with it."""
    return state.run_end_s is not None and not goes_on(state, now_s)
