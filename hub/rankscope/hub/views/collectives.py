"""The view ``collectives``: how far the ranks of each process group are."""

import numpy as np

from rankscope.hub.diagnose.hang.scene import late_s
from rankscope.hub.diagnose.hang.table import GroupRows, table
from rankscope.hub.diagnose.hang.words import operation_at
from rankscope.hub.diagnose.text import ranks_text
from rankscope.hub.inquiries import OPERATIONS
from rankscope.hub.runstate import ENDED, run_state
from rankscope.hub.state import RunState
from rankscope.hub.state.columns import Flags
from rankscope.hub.state.moved import moved_s
from rankscope.hub.views.knowledge import Knowledge, aged, asked_rank
from rankscope.protocol import messages as m
from rankscope.protocol import shapes

MAX_GROUPS = 256
MAX_OPERATIONS = 64
"""Of each group, the newest."""

MAX_RANKS = 1024
"""Named in one list."""


def collectives(know: Knowledge, request: m.ViewRequest, now_s: float) -> shapes.Collectives:
    """All groups, those that ranks differ in on top; with ``rank`` that rank's and its newest."""
    state = know.state
    rank = asked_rank(know, request)
    groups = table(state).all() if rank is None else table(state).of_ranks([rank])
    if rank is not None and request.args.get("refresh"):
        state.inquiries.want(rank, OPERATIONS, now=True)
    late = _late(state, now_s)
    rows = sorted((_row(state, group, late) for group in groups), key=_order)
    return shapes.Collectives(
        run=state.run,
        groups=rows[:MAX_GROUPS],
        findings=[finding for finding in aged(know, now_s) if finding.kind in shapes.HANGS],
        operations=_operations(state, rank) if rank is not None else [],
        note=_note(state, rows),
    )


def _order(row: shapes.CollectiveRow) -> tuple[bool, int, str]:
    return not row.behind, -row.size, row.group


def _late(state: RunState, now_s: float) -> Flags:
    """Which ranks have not moved for longer than ranks of this run wait for each other at an
    ordinary step, shape (columns,). Of a run that is over: all of them."""
    if run_state(state, now_s) in ENDED:
        return np.ones(len(state.ranks.moved_s), dtype=np.bool_)
    idle_s = np.minimum(now_s - moved_s(state), now_s - state.away_until_s)
    late: Flags = idle_s >= late_s(state)
    return late


def _row(state: RunState, group: GroupRows, late: Flags) -> shapes.CollectiveRow:
    most = int(group.entered.max())
    ahead = group.entered == most
    # Ranks never come quite together, and are not heard at quite the same time.
    kept = bool(late[group.ranks[ahead]].any())
    behind = group.ranks[~ahead][:MAX_RANKS].tolist() if kept else []
    inside = ahead & (group.completed < most)
    waiting = group.ranks[inside & late[group.ranks]][:MAX_RANKS].tolist()
    seq = int(group.completed[inside].min()) + 1 if inside.any() else most
    told = group.ranks[inside][:MAX_RANKS].tolist() or group.ranks.tolist()
    operation = operation_at(state, group, told, seq)
    sources = (state.operations.source_at(rank, group.name, seq) for rank in told[:64])
    return shapes.CollectiveRow(
        group=group.name,
        description=group.description,
        backend=_backend(state, group),
        size=len(group.ranks),
        enqueued_least=int(group.entered.min()),
        enqueued_most=most,
        completed_least=int(group.completed.min()),
        behind=behind,
        waiting=waiting,
        operation=operation,
        source=next(filter(None, sources), ""),
    )


def _backend(state: RunState, group: GroupRows) -> str:
    for index in state.words.groups.get(int(group.ranks[0]), ()):
        known = state.words.group_table.values[index] if index >= 0 else None
        if known is not None and known.name == group.name:
            return known.backend
    return ""


def _operations(state: RunState, rank: int) -> list[dict[str, str | int | float | None]]:
    """The rank's newest collectives, group by group, oldest first."""
    statuses = state.words.collectives.get(rank, {})
    rows: list[dict[str, str | int | float | None]] = []
    for group, window in state.operations.windows.get(rank, {}).items():
        _, _, completed = statuses.get(group, (-1, -1, -1))
        done = max(window.done, completed)
        for seq in range(max(window.first, window.end - MAX_OPERATIONS), window.end):
            signature = state.operations.at(rank, group, seq)
            if signature is not None:
                rows.append(
                    {
                        "group": group,
                        "seq": seq,
                        "name": signature.name,
                        "sizes": signature.sizes,
                        "dtype": signature.dtype,
                        "state": "completed" if seq <= done else "scheduled",
                        "source": state.operations.source_at(rank, group, seq),
                    }
                )
    return rows


def _note(state: RunState, rows: list[shapes.CollectiveRow]) -> str:
    reasons: dict[str, list[int]] = {}
    for rank, why in state.operations.notes.items():
        reasons.setdefault(why, []).append(rank)
    notes = [f"{ranks_text(sorted(here))}: {why}" for why, here in list(reasons.items())[:4]]
    if len(rows) > MAX_GROUPS:
        notes.append(f"{len(rows) - MAX_GROUPS} more groups are not shown")
    if not rows:
        notes.append("no collective was seen yet")
    return "; ".join(notes)
