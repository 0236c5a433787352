"""``checkpoint-slow``: a save that takes far longer than those before, or a rank far behind."""

import statistics
from collections.abc import Mapping

from rankscope.hub.diagnose.text import age_text, ranks_text
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import ALIVE, UNKNOWN
from rankscope.hub.state.saves import Row
from rankscope.protocol.shapes import Finding

LEAST_KNOWN = 2
"""Saves that tell what is usual."""

RECENT = 8
"""Of so many of the newest ones the median is what is usual."""

FACTOR = 3.0
LEAST_S = 5.0
"""A save is slow when it takes longer than usual by both."""

MAX_BEHIND = 0.25
"""Of the ranks: more of them are no exception."""


def checkpoint_slow(state: RunState, now_s: float) -> list[Finding]:
    """Of the save in work; it is over with it."""
    work = {
        rank: row
        for rank, row in state.saves.in_work().items()
        if rank < state.ranks.size and state.ranks.process.item(rank) in (ALIVE, UNKNOWN)
    }
    if not work or len(work) < len(state.saves.in_work()):
        return []  # a rank that has ended or is stopped: that is another finding
    step, request = min((row.step, row.request) for row in work.values())
    work = {rank: row for rank, row in work.items() if (row.step, row.request) == (step, request)}
    begun_s = state.saves.begun.get((step, request))
    if begun_s is None:
        return []
    return _behind(state, work, begun_s, now_s) or _longer(state, work, begun_s, now_s)


def _behind(
    state: RunState, work: Mapping[int, Row], begun_s: float, now_s: float
) -> list[Finding]:
    """Ranks that are still at it long after the others have written their parts."""
    done_s = [row.since_s for row in work.values() if row.phase == "publishing"]
    late = [rank for rank, row in work.items() if row.phase != "publishing"]
    if not late or not done_s or len(done_s) < len(work) - max(1, int(MAX_BEHIND * len(work))):
        return []
    usual_s = max(0.0, statistics.median(done_s) - begun_s)
    lag_s = now_s - statistics.median(done_s)
    if lag_s < max(LEAST_S, (FACTOR - 1) * usual_s):
        return []
    row = work[late[0]]
    return [
        Finding(
            kind="checkpoint-slow",
            severity="warning",
            ranks=late,
            victims=[],
            step=row.step,
            since_s=lag_s,
            headline=f"{ranks_text(late)} {'is' if len(late) == 1 else 'are'} far behind in the "
            f"save of step {row.step} ({row.phase}); the others were done {age_text(lag_s)} ago",
            evidence=[_how_far(rank, work[rank]) for rank in late[:4]]
            + [f"the others took {age_text(usual_s)} for their parts"],
            next="look at that node's disk and network; training goes on, and "
            "rankscope cancel gives the save up",
            where={"phase": row.phase},
        )
    ]


def _longer(
    state: RunState, work: Mapping[int, Row], begun_s: float, now_s: float
) -> list[Finding]:
    """The whole save takes longer than the ones before."""
    known = [one.took_s for one in state.saves.outcomes if one.ok and one.took_s is not None]
    if len(known) < LEAST_KNOWN:
        return []
    usual_s = statistics.median(known[-RECENT:])
    taken_s = now_s - begun_s
    if taken_s < max(FACTOR * usual_s, usual_s + LEAST_S):
        return []
    slowest = min(work, key=lambda rank: (work[rank].phase == "publishing", _share(work[rank])))
    row = work[slowest]
    return [
        Finding(
            kind="checkpoint-slow",
            severity="info",
            ranks=[],
            victims=[],
            step=row.step,
            since_s=taken_s - usual_s,
            headline=f"the save of step {row.step} has taken {age_text(taken_s)} so far, usually "
            f"it is {age_text(usual_s)}",
            evidence=[f"the slowest: {_how_far(slowest, row)}"],
            next="look at the file system of the checkpoints and at what else writes to it",
            where={"phase": row.phase},
        )
    ]


def _share(row: Row) -> float:
    return row.done_bytes / row.total_bytes if row.total_bytes else 0.0


def _how_far(rank: int, row: Row) -> str:
    text = f"rank {rank}: {row.phase}"
    if row.total_bytes:
        text += f", {row.done_bytes:,} of {row.total_bytes:,} bytes"
    if row.rate_bytes_per_s is not None:
        text += f", {row.rate_bytes_per_s / 1e6:.1f} MB/s"
    return text
