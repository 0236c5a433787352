"""``checkpoint-failed``: a save came to nothing, or cannot come to an end any more."""

from rankscope.hub.diagnose.endings import GOODBYE_GRACE_S
from rankscope.hub.diagnose.text import age_text, ended_text, ranks_text
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import ENDED, FINISHED, STOPPED
from rankscope.hub.state.saves import Outcome, Resumed
from rankscope.protocol.shapes import Finding

MAX_EVIDENCE = 4

LAST_WORDS_S = 2.0
"""A rank that has ended in order tells before what came of its save: it may come so long after the
word of its end, on another connection."""

CANCELLED = "cancelled"
"""How the words on a save begin that somebody wanted to end: nothing has failed."""


def checkpoint_failed(state: RunState, now_s: float) -> list[Finding]:
    """The save in work that a rank can no longer take part in; else the newest one, if it failed.

    It is over with the next save that succeeds.
    """
    lost = _lost(state, now_s)
    if lost is not None:
        return [lost]
    newest = next(
        (one for one in reversed(state.saves.outcomes) if one.attempt == state.attempt), None
    )
    if newest is None or newest.ok or newest.text.startswith(CANCELLED):
        return []
    return [_failed(state, newest, now_s)]


def _lost(state: RunState, now_s: float) -> Finding | None:
    """A rank in a save has died or is stopped: what it was writing will not be there."""
    work = {rank: row for rank, row in state.saves.in_work().items() if rank < state.ranks.size}
    dead = [rank for rank in work if _has_died(state, rank, now_s)]
    stopped = [rank for rank in work if state.ranks.process.item(rank) == STOPPED]
    gone = _first(state, dead) or _first(state, stopped)
    if not gone:
        return None
    row = work[gone[0]]
    if dead:
        how = f"died ({ended_text(state, gone[0]) or 'nobody saw how'})"
        since_s = state.ranks.ended_s.item(gone[0])
    else:
        how = f"{'is' if len(gone) == 1 else 'are'} stopped"
        since_s = state.ranks.process_since_s.item(gone[0])
    return Finding(
        kind="checkpoint-failed",
        severity="warning",
        ranks=gone,
        victims=[],
        step=row.step,
        since_s=max(0.0, now_s - since_s),
        headline=f"{ranks_text(gone)} {how} in the save of step {row.step} ({row.phase})",
        evidence=[
            f"rank {rank}: {work[rank].phase}, {work[rank].done_bytes:,} of "
            f"{work[rank].total_bytes:,} bytes"
            for rank in gone[:MAX_EVIDENCE]
        ]
        + _before(state, now_s),
        next="the checkpoint before it is still the newest: go on with --resume auto",
        where={"phase": row.phase},
    )


def _has_died(state: RunState, rank: int, now_s: float) -> bool:
    """Whether its process has ended, and what it said before would have come by now: that may be
    that the save was complete."""
    ranks = state.ranks
    in_order = ranks.goodbye[rank] == FINISHED and not ranks.signal[rank]
    patience_s = LAST_WORDS_S if in_order else GOODBYE_GRACE_S
    ended = ranks.process.item(rank) == ENDED
    return ended and now_s - ranks.ended_heard_s.item(rank) >= patience_s


def _first(state: RunState, ranks: list[int]) -> list[int]:
    """Those of ``ranks`` in the phase of the first of them to end or stop.

    A launcher ends the others soon after: they are no culprits.
    """
    if not ranks:
        return []
    columns = state.ranks
    ended = columns.process.item(ranks[0]) == ENDED
    since_s = columns.ended_s if ended else columns.process_since_s
    first = min(ranks, key=lambda rank: (since_s.item(rank), rank))
    return [first] if ended else ranks


def _failed(state: RunState, newest: Outcome, now_s: float) -> Finding:
    culprit = [newest.culprit] if 0 <= newest.culprit < state.size() else []
    return Finding(
        kind="checkpoint-failed",
        severity="warning",
        ranks=culprit,
        victims=[],
        step=newest.step,
        since_s=max(0.0, now_s - newest.at_s),
        headline=f"the checkpoint of step {newest.step} failed: {newest.text}",
        evidence=_before(state, now_s),
        next="training goes on; look at the disk and the rank, then: rankscope checkpoint",
        where={"phase": newest.culprit_phase} if newest.culprit_phase else {},
    )


def _before(state: RunState, now_s: float) -> list[str]:
    last = state.saves.back()
    if last is None:
        return ["there is no complete checkpoint of this run yet"]
    if isinstance(last, Resumed):
        return [
            f"none has been saved since the run was resumed from that of step {last.step}: "
            f"{last.path}"
        ]
    age = age_text(max(0.0, now_s - last.at_s))
    return [f"the newest complete one is of step {last.step}, {age} old: {last.path}"]
