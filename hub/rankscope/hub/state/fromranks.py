"""What ranks' messages do to the state: one function a kind, listed in ``run.py``."""

import math
from typing import TYPE_CHECKING

from rankscope.hub.state.plausible import BadMessage, lie_of_rank
from rankscope.hub.state.ranks import (
    EXCEPTION,
    FINISHED,
    NO_EXIT_CODE,
    NO_GOODBYE,
    UNOBSERVED,
    RankColumns,
)
from rankscope.hub.state.sequences import AGAIN, FRESH
from rankscope.hub.state.words import RankException, Rival
from rankscope.protocol import messages as m

MANY = 512
"""Ranks of a large world: what they tell of a hang waits for the next ordinary diagnosis."""

GOODBYES = {"finished": FINISHED, "exception": EXCEPTION, "paused": UNOBSERVED}

if TYPE_CHECKING:
    from rankscope.hub.state.run import RankHandler, RunState


def take(
    state: "RunState",
    message: m.FromRank,
    handler: "RankHandler",
    late: "RankHandler | None",
    received_s: float,
) -> bool:
    """Take in one message; ``late`` is what is still true of one that a newer one overtook.

    False when it was known already or is of an attempt that is over. Raises
    :class:`BadMessage`.
    """
    rank = message.rank
    attempt = message.attempt
    now = attempt == state.attempt
    last_seq = state.sequences.cells.last[rank] if now and rank < state.sequences.size else 0
    lie = lie_of_rank(message, state.run, state.world_size if now else 0, last_seq)
    if lie:
        raise BadMessage(lie)
    if not now:
        if attempt < state.attempt:
            return False
        state.begin_attempt(attempt)
    ranks = state.ranks
    if rank >= ranks.size:
        state.reserve(max(rank + 1, state.world_size))
    if type(message) is m.Hello:
        if _is_rival(state, message, received_s):
            return _rival(state, message, received_s)
        _renew(state, message)
    arrived = state.sequences.arrived(rank, message.seq)
    if arrived == AGAIN:
        return False
    state.clocks.heard(rank, message.t_s, received_s)
    if arrived == FRESH:
        if state.first_heard_s is None:
            state.first_heard_s = received_s
            state.head_changed = state.version + 1
        ranks.cells.heard_s[rank] = received_s
        handler(state, message, received_s)
    elif late is not None:
        late(state, message, received_s)
    state.version += 1
    state.ranks.cells.changed[rank] = state.version
    return True


def nothing(state: "RunState", message: m.FromRank, received_s: float) -> None:
    """Of a kind that no part keeps: it is numbered all the same."""


def _renew(state: "RunState", hello: m.Hello) -> None:
    """A new life of the same rank in the same attempt: another process, or attached again."""
    rank = hello.rank
    ranks = state.ranks
    if not ranks.known[rank]:
        return
    other = not state.is_process(hello)
    if other or (hello.seq == 1 and ranks.goodbye[rank]):
        ranks.clear(rank)
        state.sequences.restart(rank)
        # What another process said before it was its turn is not missed.
        state.sequences.cells.last[rank] = max(0, hello.seq - 1)
        state.clocks.clear(rank)
        state.words.forget(rank)
        for part in state.parts():
            part.forget(rank)
        if other:
            state.lives.takes_over(hello)
        state.news()


def _is_rival(state: "RunState", hello: m.Hello, now_s: float) -> bool:
    return state.is_there(hello.rank, now_s) and not state.is_process(hello)


def _rival(state: "RunState", hello: m.Hello, now_s: float) -> bool:
    known = state.words.rivals.get(hello.rank)
    if known is not None and (known.pid, known.host) == (hello.pid, hello.host):
        return False
    state.words.rivals[hello.rank] = Rival(hello.pid, hello.host, now_s)
    state.news()
    return True


def hello(state: "RunState", hello: m.Hello, received_s: float) -> None:
    rank = hello.rank
    state.lives.hello(hello)
    if hello.world_size != state.world_size:
        state.world_size = hello.world_size
        state.reserve(hello.world_size)
    ranks = state.ranks
    if not ranks.known[rank]:
        ranks.known[rank] = True
        ranks.start_step[rank] = hello.start_step
        if ranks.step.item(rank) < hello.start_step:
            ranks.step[rank] = hello.start_step
            ranks.recorded[rank] = hello.start_step
    ranks.host[rank] = state.words.hosts.index(hello.host)
    ranks.identity[rank] = state.words.identity(hello)
    state.setup.hello(rank, hello.facts, received_s)
    state.saves.hello(hello)
    ranks.pid[rank] = hello.pid
    ranks.local_rank[rank] = hello.local_rank
    ranks.boundary[rank] = hello.boundary
    if math.isnan(ranks.phase_since_s.item(rank)):
        ranks.phase_since_s[rank] = received_s
    if math.isnan(ranks.moved_s.item(rank)):
        ranks.moved_s[rank] = received_s
    if hello.name and not state.name:
        state.name = hello.name
    state.head_changed = state.version + 1


def beat(state: "RunState", beat: m.Beat, received_s: float) -> None:
    if beat.hub_offset_s is not None:
        state.clocks.estimated(beat.rank, beat.hub_offset_s, beat.hub_offset_error_s)
    ranks = state.ranks
    ranks.beat(beat, state.clocks, received_s)
    # Once its process has ended this is merely late; else it was attached again.
    if ranks.cells.goodbye[beat.rank] and math.isnan(ranks.cells.ended_s[beat.rank]):
        if ranks.goodbye[beat.rank] == UNOBSERVED:
            ranks.excused_s[beat.rank] = received_s
        ranks.goodbye[beat.rank] = NO_GOODBYE
    if beat.memory is not None:
        state.words.memory[beat.rank] = beat.memory
        start_step = ranks.start_step.item(beat.rank)
        if state.memory.reading(beat.rank, beat.step, start_step, beat.memory):
            state.unusual = True
    if beat.collectives:
        statuses(state, beat.rank, beat.collectives)
    state.progress.beat(beat, received_s)
    if beat.steps or beat.late:
        records(state, beat, received_s)


def statuses(state: "RunState", rank: int, statuses: tuple[m.CollectiveStatus, ...]) -> None:
    known = state.words.collectives.get(rank, {})
    for status in statuses:
        before = known.get(status.group)
        if before is not None and status.last_enqueued < before[0]:
            state.operations.restarted(rank, status.group)
    state.words.set_collectives(rank, statuses)
    state.progress.pairs.statuses(rank, statuses)


def records(state: "RunState", beat: m.Beat, received_s: float) -> None:
    """The completed steps of a beat: true also when it comes late."""
    rank = beat.rank
    for record in beat.steps:
        if state.ranks.record(rank, record):
            state.paces.record(record, rank)
            done_s = state.clocks.place(rank, record.t_s, received_s)
            state.history.record(beat.attempt, record, done_s)
            if state.numerics.record(rank, record):
                state.unusual = True
            state.parity.record(rank, record, state.world_size)
    for late in beat.late:
        state.ranks.values(rank, late.step, late.loss, late.grad_norm)
        sharded = bool(state.ranks.grad_sharded[rank])
        state.history.late(beat.attempt, late.step, (late.loss, late.grad_norm), sharded)
        if state.numerics.late(rank, late):
            state.unusual = True
        state.parity.late(rank, late.step, late.loss)


def groups(state: "RunState", groups: m.Groups, received_s: float) -> None:
    state.words.set_groups(groups.rank, groups.groups)
    state.progress.version += 1
    state.progress.groups_version += 1


def raised(state: "RunState", raised: m.Raised, received_s: float) -> None:
    state.words.exceptions.setdefault(
        raised.rank,
        RankException(
            at_s=state.clocks.place(raised.rank, raised.event_t_s, received_s),
            type=raised.type,
            message=raised.message,
            traceback=raised.traceback,
            source=raised.source,
            step=raised.step,
            phase=int(raised.phase),
            from_peer=raised.from_peer,
        ),
    )
    state.news()


def probe_fault(state: "RunState", fault: m.ProbeFault, received_s: float) -> None:
    state.words.set_probe_fault(fault.rank, fault)


def goodbye(state: "RunState", goodbye: m.Goodbye, received_s: float) -> None:
    rank = goodbye.rank
    ranks = state.ranks
    ranks.goodbye[rank] = GOODBYES.get(goodbye.reason, FINISHED)
    ranks.unheard[rank] = False
    if not math.isnan(ranks.ended_s.item(rank)):
        unobserved_ended(ranks, rank)
    ranks.goodbye_s[rank] = state.clocks.place(rank, goodbye.t_s, received_s)
    if goodbye.step > ranks.step.item(rank):
        ranks.step[rank] = goodbye.step
    state.progress.goodbye(goodbye)
    state.news()


def unobserved_ended(ranks: RankColumns, rank: int) -> None:
    """The process of a rank that was not observed any more has ended: how, says its exit."""
    if ranks.goodbye[rank] == UNOBSERVED:
        badly = bool(ranks.signal[rank]) or ranks.exit_code.item(rank) not in (0, NO_EXIT_CODE)
        ranks.goodbye[rank] = NO_GOODBYE if badly else FINISHED


def stacks(state: "RunState", stacks: m.Stacks, received_s: float) -> None:
    state.stacks.told(stacks, received_s)
    _evidence(state)


def operations(state: "RunState", operations: m.Operations, received_s: float) -> None:
    statuses(state, operations.rank, operations.statuses)
    state.progress.version += 1
    state.operations.told(operations, received_s)
    for name, window in state.operations.windows.get(operations.rank, {}).items():
        state.progress.pairs.done(operations.rank, name, window.done)
    _evidence(state)


def _evidence(state: "RunState") -> None:
    """Worth a diagnosis at once, unless thousands of ranks tell it one after the other."""
    if state.size() <= MANY:
        state.news()


def saving(state: "RunState", saving: m.Saving, received_s: float) -> None:
    since_s = state.clocks.place(saving.rank, saving.phase_t_s, received_s)
    state.saves.told(saving, since_s)
    if saving.phase in ("done", "failed"):
        state.news()


def save_ended(state: "RunState", saving: m.Saving, received_s: float) -> None:
    """What came of a save is true also when it comes late."""
    since_s = state.clocks.place(saving.rank, saving.phase_t_s, received_s)
    state.saves.ended(saving, since_s)
    state.news()


def controlled(state: "RunState", controlled: m.Controlled, received_s: float) -> None:
    rank = controlled.rank
    held = rank in state.controls.held
    since_s = state.clocks.place(rank, controlled.phase_t_s, received_s)
    state.controls.told(controlled, since_s, received_s)
    if held and rank not in state.controls.held:
        state.ranks.moved_s[rank] = received_s  # that it stood still until now was meant
    _evidence(state)


def control_ended(state: "RunState", controlled: m.Controlled, received_s: float) -> None:
    """What came of a request is true also when it comes late."""
    at_s = state.clocks.place(controlled.rank, controlled.phase_t_s, received_s)
    state.controls.ended(controlled, at_s)
    state.news()
