"""``rank-stopped``: a process is stopped (SIGSTOP, a debugger), as its sentinel sees it."""

import numpy as np

from rankscope.hub.diagnose.text import last_heard, phase_of, ranks_text, step_in_work
from rankscope.hub.diagnose.waiting import not_advancing
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import STOPPED
from rankscope.protocol.shapes import Finding


def rank_stopped(state: RunState, now_s: float) -> list[Finding]:
    """One finding for all stopped ranks, since the first of them stopped."""
    ranks = state.ranks
    size = state.size()
    stopped = np.flatnonzero((ranks.process[:size] == STOPPED) & ~ranks.over()[:size]).tolist()
    if not stopped:
        return []
    first = min(stopped, key=lambda rank: (ranks.process_since_s.item(rank), rank))
    return [
        Finding(
            kind="rank-stopped",
            severity="critical",
            ranks=stopped,
            victims=not_advancing(state, now_s, stopped),
            step=step_in_work(state, first),
            since_s=max(0.0, now_s - ranks.process_since_s.item(first)),
            headline=f"{ranks_text(stopped)} {'is' if len(stopped) == 1 else 'are'} stopped"
            f"{last_heard(state, first)}",
            evidence=[
                f"sentinel on {state.host(rank) or 'its node'}: pid {ranks.pid.item(rank)} "
                "is in state T (stopped by a signal or a debugger)"
                for rank in stopped[:6]
            ],
            next=go_on(state, first),
            where={"phase": phase_of(state, first)},
        )
    ]


def go_on(state: RunState, rank: int) -> str:
    """How ``rank``, which is stopped, is let go on."""
    on = f" (on {state.host(rank)})" if state.host(rank) else ""
    return f"let it go on: kill -CONT {state.ranks.pid.item(rank)}{on}"
