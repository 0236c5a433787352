"""The hub's own verdict on dumps: they are told to its state as ranks would tell them. Pure."""

import math
from collections.abc import Mapping

import msgspec

from rankscope.hub.analyze import words
from rankscope.hub.analyze.files import Dump, Entry
from rankscope.hub.analyze.job import Group, Job
from rankscope.hub.diagnose.hang.scene import look
from rankscope.hub.diagnose.hang.table import label
from rankscope.hub.diagnose.hangs import hangs
from rankscope.hub.diagnose.text import ranks_text
from rankscope.hub.state import RunState
from rankscope.protocol import limits
from rankscope.protocol import messages as m
from rankscope.protocol.shapes import Analysis, CollectiveRow, Finding

BEGAN_S = 1000.0
LATER_S = 10_000.0
"""A dump is of something that stands still: all of this time has gone without a move."""

MAX_LINES = 4


def analyse(job: Job, notes: list[str]) -> Analysis:
    """What hangs, who is to blame, and how far each group has come."""
    state = told(job)
    findings = hangs(state, [], LATER_S)
    if not findings:
        findings = _no_dump(job, state)
    return Analysis(
        world_size=job.world_size,
        ranks=sorted(job.dumps),
        missing=job.missing,
        findings=[_without_a_live_run(job, finding) for finding in findings],
        groups=_rows(job),
        notes=notes,
    )


def told(job: Job) -> RunState:
    """The state of a hub that has heard of all that the dumps hold."""
    state = RunState("dumps")
    groups = _in_order(job)
    for rank, dump in job.dumps.items():
        state.apply(_hello(job, rank), BEGAN_S)
        mine = [group for group in groups if rank in group.ranks][: limits.MAX_GROUPS]
        entries = by_group(dump)
        statuses = tuple(status(group, entries.get(group.name, []), dump) for group in mine)
        state.apply(
            m.Groups(
                *(0, rank, 2, BEGAN_S),
                groups=tuple(_group(group) for group in mine),
            ),
            BEGAN_S,
        )
        seq = 3
        for chunk in _chunks(operations(dump)):
            state.apply(m.Operations(0, rank, seq, BEGAN_S, "asked", statuses, chunk), BEGAN_S)
            seq += 1
        for at_s in (BEGAN_S, LATER_S):
            state.apply(
                m.Beat(
                    *(0, rank, seq, at_s),
                    step=1,
                    microbatch=1,
                    phase=m.Phase.OTHER,
                    phase_t_s=BEGAN_S,
                    activity=1,
                ),
                at_s,
            )
            seq += 1
    return state


def operations(dump: Dump) -> list[m.Operation]:
    newest = max((entry.time_created_ns for entry in dump.entries), default=0)
    return [_operation(entry, newest) for entry in dump.entries if _counts(entry)]


def by_group(dump: Dump) -> dict[str, list[Entry]]:
    """The collectives of a dump by the name of their group, in the order in which they began."""
    found: dict[str, list[Entry]] = {}
    for entry in dump.entries:
        if _counts(entry):
            found.setdefault(entry.process_group[0], []).append(entry)
    return found


def status(group: Group, mine: list[Entry], dump: Dump) -> m.CollectiveStatus:
    """How far a rank has come in ``group``, in which it did ``mine``."""
    enqueued = max((entry.collective_seq_id for entry in mine), default=0)
    pg_ids = {str(entry.pg_id) for entry in mine}
    enqueued = max([enqueued, *(dump.enqueued.get(pg_id, 0) for pg_id in pg_ids)])
    pending = [entry.collective_seq_id for entry in mine if not words.is_over(entry)]
    return m.CollectiveStatus(group.name, enqueued, -1, min(pending, default=enqueued + 1) - 1)


def _counts(entry: Entry) -> bool:
    return not entry.is_p2p and bool(entry.process_group and entry.process_group[0])


def _hello(job: Job, rank: int) -> m.Hello:
    return m.Hello(
        *(0, rank, 1, BEGAN_S),
        run="dumps",
        world_size=job.world_size,
        local_rank=0,
        host="",
        pid=0,
        name="",
        trainer="plain",
        device="cpu",
        start_step=0,
        boundary=False,
        facts={},
    )


def _group(group: Group) -> m.Group:
    members = sorted(group.ranks)
    return m.Group(
        group.name[: limits.MAX_NAME_CHARS],
        group.description[: limits.MAX_NAME_CHARS],
        group.backend[: limits.MAX_NAME_CHARS],
        len(members),
        tuple(members) if len(members) <= limits.MAX_GROUP_RANKS else (),
    )


def _operation(entry: Entry, newest_ns: int) -> m.Operation:
    age_s = (newest_ns - entry.time_created_ns) / 1e9
    return m.Operation(
        group=entry.process_group[0][: limits.MAX_NAME_CHARS],
        seq=max(0, entry.collective_seq_id),
        name=entry.profiling_name[: limits.MAX_NAME_CHARS],
        sizes=words.sizes(entry),
        dtype=words.dtype(entry),
        state="completed" if words.is_over(entry) else entry.state[:32],
        source=words.source(entry.frames),
        age_s=age_s if math.isfinite(age_s) and age_s >= 0 else None,
    )


def _chunks(found: list[m.Operation]) -> list[tuple[m.Operation, ...]]:
    size = limits.MAX_OPERATIONS
    return [tuple(found[at : at + size]) for at in range(0, max(1, len(found)), size)]


def _in_order(job: Job) -> list[Group]:
    return sorted(job.groups.values(), key=lambda group: (-len(group.ranks), group.name))


def _no_dump(job: Job, state: RunState) -> list[Finding]:
    """Ranks wait for others that left no dump."""
    scene = look(state, LATER_S)
    if scene is None:
        return []
    for wait in sorted(scene.waits, key=lambda wait: -len(wait.waiting)):
        gone = [rank for rank in wait.missing if rank in job.missing]
        if not gone:
            continue
        operation = next(
            filter(None, (state.operations.at(r, wait.group.name, wait.seq) for r in wait.waiting)),
            None,
        )
        what = "a collective" if operation is None else operation.text()
        name = label(wait.group.name, wait.group.description)
        return [
            Finding(
                kind="missing-collective",
                severity="critical",
                ranks=gone,
                victims=wait.waiting,
                step=None,
                since_s=0.0,
                headline=f"{ranks_text(gone)} left no dump, and {ranks_text(wait.waiting)} "
                f"wait{'s' if len(wait.waiting) == 1 else ''} in {what}, #{wait.seq} of {name}",
                evidence=[],
                next=f"find out whether {ranks_text(gone)} died: read the end of its output",
                where={} if operation is None else {"collective": operation.name},
            )
        ]
    return []


def _without_a_live_run(job: Job, finding: Finding) -> Finding:
    """What only a live run has is left out: steps, phases, ages, and commands to look with."""
    evidence = [line for line in finding.evidence if "has been" not in line and "is in" not in line]
    for rank in finding.ranks[:MAX_LINES]:
        dump = job.dumps.get(rank)
        mine = [] if dump is None else [entry for entry in dump.entries if _counts(entry)]
        if mine:
            last = _operation(mine[-1], mine[-1].time_created_ns)
            text = " ".join(filter(None, (last.name.rpartition(":")[2], last.sizes, last.dtype)))
            at = f", called at {last.source}" if last.source else ""
            evidence.append(
                f"rank {rank}: its last collective was {text}, #{last.seq}, "
                f"{'complete' if last.state == 'completed' else 'pending'}{at}"
            )
    where = {key: value for key, value in finding.where.items() if key != "phase"}
    source = where.get("source")
    next_ = f"read {source}" if source else finding.next
    if "rankscope stacks" in next_:
        next_ = "look at what " + ranks_text(finding.ranks or finding.victims) + " did after that"
    return msgspec.structs.replace(
        finding, step=None, since_s=0.0, evidence=evidence, next=next_, where=where
    )


def _rows(job: Job) -> list[CollectiveRow]:
    entries = {rank: by_group(dump) for rank, dump in job.dumps.items()}
    return [_row(job, group, entries) for group in _in_order(job)]


def _row(job: Job, group: Group, entries: Mapping[int, Mapping[str, list[Entry]]]) -> CollectiveRow:
    here = {rank: entries[rank].get(group.name, []) for rank in sorted(group.ranks & set(entries))}
    statuses = {rank: status(group, mine, job.dumps[rank]) for rank, mine in here.items()}
    entered = {rank: one.last_enqueued for rank, one in statuses.items()}
    newest = max(entered.values(), default=-1)
    pending = [rank for rank, one in statuses.items() if one.last_completed < one.last_enqueued]
    last: m.Operation | None = None
    for rank in pending or list(statuses):
        if here[rank]:
            last = _operation(here[rank][-1], here[rank][-1].time_created_ns)
            break
    return CollectiveRow(
        group=group.name,
        description=group.description,
        backend=group.backend,
        size=len(group.ranks),
        enqueued_least=min(entered.values(), default=-1),
        enqueued_most=newest,
        completed_least=min((one.last_completed for one in statuses.values()), default=-1),
        behind=[rank for rank, seq in entered.items() if seq < newest],
        waiting=pending,
        operation="" if last is None else f"{last.name} {last.sizes} {last.dtype}".strip(),
        source="" if last is None else last.source,
    )
