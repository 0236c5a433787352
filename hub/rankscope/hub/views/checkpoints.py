"""The view ``checkpoints``: who is saving and how far, what came of it, and the newest one."""

from rankscope.hub import commands, possible
from rankscope.hub.parity import parity
from rankscope.hub.runstate import as_of_s, run_state
from rankscope.hub.state import RunState
from rankscope.hub.state.saves import Outcome, Resumed, Row
from rankscope.hub.views.knowledge import Knowledge
from rankscope.protocol import messages as m
from rankscope.protocol import shapes

MAX_ROWS = 512


def checkpoints(know: Knowledge, request: m.ViewRequest, now_s: float) -> shapes.CheckpointsView:
    """The ranks in a save, or those of a large world that are least far."""
    state = know.state
    as_of = as_of_s(state, run_state(state, now_s), now_s)
    work = state.saves.in_work()
    shown = sorted(work, key=lambda rank: (share(work[rank]), rank))
    return shapes.CheckpointsView(
        run=state.run,
        pending=know.pending,
        request=0 if know.asked is None else know.asked.request,
        ranks=[_row(rank, work[rank], as_of) for rank in sorted(shown[:MAX_ROWS])],
        left_out=max(0, len(work) - MAX_ROWS),
        slowest=shown[0] if shown else None,
        outcomes=[_outcome(one, as_of) for one in reversed(state.saves.outcomes)],
        last=last(state),
        command=commands.in_work(state, know.asked, know.pending, as_of),
        commands=commands.past(know.incidents, as_of),
        paused=commands.paused(state, as_of),
        possible=possible.refusals(state, know.busy(), now_s),
        note=commands.note(state, know.asked, know.pending, now_s),
        parity=parity(state),
        as_of_s=as_of,
        resumed=resumed(state),
    )


def last(state: RunState) -> shapes.Checkpoint | None:
    """The newest complete checkpoint that there is to go back to."""
    found = state.saves.back()
    if found is None:
        return None
    finite = state.saves.finite() if found.notfinite else None
    return shapes.Checkpoint(
        found.step,
        found.path,
        verified=True,
        resumed=isinstance(found, Resumed),
        notfinite=found.notfinite,
        finite_step=None if finite is None else finite.step,
    )


def resumed(state: RunState) -> shapes.Resumed | None:
    """What the ranks go on from."""
    found = state.saves.resumed
    return None if found is None else shapes.Resumed(found.step, found.path)


def share(row: Row) -> float:
    """How much of its bytes the rank has written."""
    if row.phase in ("syncing", "publishing"):
        return 1.0
    return row.done_bytes / row.total_bytes if row.total_bytes else 0.0


def _row(rank: int, row: Row, now_s: float) -> shapes.SaveRow:
    return shapes.SaveRow(
        rank=rank,
        step=row.step,
        request=row.request,
        phase=row.phase,
        phase_s=max(0.0, now_s - row.since_s),
        done_bytes=row.done_bytes,
        total_bytes=row.total_bytes,
        rate_bytes_per_s=row.rate_bytes_per_s,
    )


def _outcome(outcome: Outcome, now_s: float) -> shapes.SaveOutcome:
    return shapes.SaveOutcome(
        step=outcome.step,
        request=outcome.request,
        ok=outcome.ok,
        age_s=max(0.0, now_s - outcome.at_s),
        path=outcome.path,
        text=outcome.text,
        rank=outcome.culprit if outcome.culprit >= 0 else None,
        phase=outcome.culprit_phase,
        size_bytes=outcome.size_bytes,
        notfinite=outcome.notfinite,
    )
