"""The view ``rank``: everything known of one rank."""

import msgspec

from rankscope.hub.rows import rank_rows
from rankscope.hub.runstate import as_of_s, run_state
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import PHASES
from rankscope.hub.views.knowledge import (
    Knowledge,
    NoSuchView,
    asked_rank,
    completed,
    grad_norm,
    no_rank,
    or_none,
    run_step,
)
from rankscope.protocol import messages as m
from rankscope.protocol import shapes


def rank_detail(know: Knowledge, request: m.ViewRequest, now_s: float) -> shapes.RankDetail:
    """Everything known of one rank. Raises :class:`NoSuchView` for one that is not there."""
    state = know.state
    rank = asked_rank(know, request)
    if rank is None:
        raise NoSuchView(no_rank(rank, state.size()))
    ranks, words = state.ranks, state.words
    now_s = as_of_s(state, run_state(state, now_s), now_s)
    steps = completed(state, run_step(state))
    (row,) = rank_rows(state, now_s, [rank], grad_norm(state, steps))
    identity = ranks.identity.item(rank)
    who = words.identities.values[identity] if identity >= 0 else None
    memory = words.memory.get(rank)
    raised = words.exceptions.get(rank)
    return shapes.RankDetail(
        row=row,
        facts={**dict(who.facts), **state.setup.own.get(rank, {})} if who else {},
        trainer=who.trainer if who else "",
        device=who.device if who else "",
        groups=_groups(state, rank),
        phase_s=dict(zip(PHASES, ranks.phase_means_s[rank].tolist(), strict=True))
        if ranks.steps_seen[rank]
        else {},
        step_s_history=ranks.recent(rank),
        memory=msgspec.structs.asdict(memory) if memory is not None else {},
        cpu_s=or_none(ranks.cpu_s.item(rank)),
        resident_bytes=_resident(ranks.resident_bytes.item(rank), memory),
        hub_offset_s=or_none(state.clocks.offset_s.item(rank)),
        hub_offset_error_s=or_none(state.clocks.error_s.item(rank)),
        probe_faults=dict(words.probe_faults.get(rank, {})),
        exception=raised.traceback if raised else "",
    )


def _groups(state: RunState, rank: int) -> list[shapes.GroupRow]:
    statuses = state.words.collectives.get(rank, {})
    rows = []
    for index in state.words.groups.get(rank, ()):
        if index < 0:
            continue
        group = state.words.group_table.values[index]
        enqueued, started, completed = statuses.get(group.name, (-1, -1, -1))
        rows.append(
            shapes.GroupRow(
                group=group.name,
                description=group.description,
                backend=group.backend,
                size=group.size,
                ranks=list(group.ranks),
                last_enqueued=enqueued,
                last_started=started,
                last_completed=completed,
            )
        )
    return rows


def _resident(resident: int, memory: m.Memory | None) -> int | None:
    if resident >= 0:
        return resident
    return None if memory is None else memory.resident_bytes
