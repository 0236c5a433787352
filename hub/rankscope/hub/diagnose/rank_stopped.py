"""``rank-stopped``: a process is stopped (SIGSTOP, a debugger), as its sentinel sees it."""

import msgspec
import numpy as np

from rankscope.hub.diagnose.text import last_heard, phase_of, ranks_text, step_in_work
from rankscope.hub.diagnose.waiting import not_advancing
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import STOPPED
from rankscope.protocol.shapes import Finding

MAX_EVIDENCE = 6


def rank_stopped(state: RunState, now_s: float) -> list[Finding]:
    """One finding for all stopped ranks, since the first of them stopped."""
    ranks = state.ranks
    size = state.size()
    stopped = np.flatnonzero((ranks.process[:size] == STOPPED) & ~ranks.over()[:size]).tolist()
    if not stopped:
        return []
    first = _first(state, stopped)
    return [
        Finding(
            kind="rank-stopped",
            severity="critical",
            ranks=stopped,
            victims=not_advancing(state, now_s, stopped),
            step=step_in_work(state, first),
            since_s=max(0.0, now_s - ranks.stopped_s.item(first)),
            headline=_headline(state, stopped),
            evidence=_evidence(state, stopped),
            next=go_on(state, first),
            where={"phase": phase_of(state, first)},
        )
    ]


def with_those_killed(state: RunState, finding: Finding, killed: list[int]) -> Finding:
    """``finding``, of ranks that were stopped last, with ``killed``, who were stopped until that:
    while one after the other was ended it told of those that were left."""
    stopped = sorted({*finding.ranks, *killed})
    return msgspec.structs.replace(
        finding,
        ranks=stopped,
        victims=[rank for rank in finding.victims if rank not in stopped],
        headline=_headline(state, stopped),
        evidence=_evidence(state, stopped),
    )


def _first(state: RunState, stopped: list[int]) -> int:
    return min(stopped, key=lambda rank: (state.ranks.stopped_s.item(rank), rank))


def _headline(state: RunState, stopped: list[int]) -> str:
    are = "is" if len(stopped) == 1 else "are"
    return f"{ranks_text(stopped)} {are} stopped{last_heard(state, _first(state, stopped))}"


def _evidence(state: RunState, stopped: list[int]) -> list[str]:
    return [
        f"sentinel on {state.host(rank) or 'its node'}: pid {state.ranks.pid.item(rank)} "
        "is in state T (stopped by a signal or a debugger)"
        for rank in stopped[:MAX_EVIDENCE]
    ]


def go_on(state: RunState, rank: int) -> str:
    """How ``rank``, which is stopped, is let go on."""
    on = f" (on {state.host(rank)})" if state.host(rank) else ""
    return f"let it go on: kill -CONT {state.ranks.pid.item(rank)}{on}"
