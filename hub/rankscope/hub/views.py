"""What clients see: pure functions from the hub's knowledge to the shapes of the protocol."""

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from rankscope.hub import rates
from rankscope.hub.diagnose import gravest
from rankscope.hub.incidents import Incidents
from rankscope.hub.liveness import by_host, sentinel_link
from rankscope.hub.rows import rank_rows
from rankscope.hub.runstate import ENDED, as_of_s, ended_s, exit_code, run_state
from rankscope.hub.stall import stalled_s
from rankscope.hub.state import RunState
from rankscope.hub.state.history import KEPT_STEPS, StepEntry
from rankscope.hub.state.nodes import Sentinel
from rankscope.hub.state.ranks import PHASES
from rankscope.protocol import messages as m
from rankscope.protocol import shapes

HISTORY_STEPS = 120
MAX_WITHOUT_RANKS = 512
"""Nodes shown of which only a sentinel spoke."""

OVERHEAD_DIGITS = 9


class NoSuchView(ValueError):
    """There is no view, or no rank, of that name; the text says so in words."""


@dataclass
class Knowledge:
    """All that views are made of."""

    state: RunState
    incidents: Incidents
    findings: list[shapes.Finding]
    """Open ones, with ages as of ``diagnosed_s``."""
    diagnosed_s: float
    note: str = ""
    """What the hub has to say of itself, such as a full disk."""


def view(know: Knowledge, request: m.ViewRequest, base: int, now_s: float) -> shapes.Shape:
    """The view a client asked for. ``base`` is the version with which this hub process began.

    Raises :class:`NoSuchView`.
    """
    match request.view:
        case "status":
            known = base <= request.since <= know.state.version
            return status(know, request.since if known else 0, now_s)
        case "overview":
            return overview(know, now_s)
        case "rank":
            return rank_detail(know, request.args.get("rank"), now_s)
        case "incidents":
            return shapes.Incidents(incidents=know.incidents.shown)
    raise NoSuchView(f"there is no view {request.view!r}; there are {', '.join(shapes.VIEWS)}")


def run_step(state: RunState) -> int:
    """The last step completed by every rank that was heard of."""
    heard = state.ranks.heard()
    return int(state.ranks.step[heard].min()) if heard.any() else 0


def status(know: Knowledge, since: int, now_s: float) -> shapes.Status:
    """The whole run; with ``since`` > 0 only the rank rows that changed after that version."""
    state = know.state
    wanted = None
    if since > 0:
        wanted = np.flatnonzero(state.ranks.changed[: state.size()] > since).tolist()
    word = run_state(state, now_s)
    now_s = as_of_s(state, word, now_s)
    findings = aged(know, now_s)
    step = run_step(state)
    return shapes.Status(
        run=state.run,
        attempt=state.attempt,
        world_size=state.world_size or state.size(),
        state=word,
        step=step,
        verdict=gravest(findings),
        findings=findings,
        ranks=rank_rows(state, now_s, wanted, _grad_norm(state, _completed(state, step))),
        last_checkpoint=None,
        dropped=state.dropped(),
        overhead_s_per_step=_overhead_s(state),
        name=state.name,
        stalled_s=stalled_s(state, now_s) if word == "stalled" else None,
        exit_code=exit_code(state),
        full=since <= 0,
    )


def overview(know: Knowledge, now_s: float) -> shapes.Overview:
    """The run without its ranks."""
    state = know.state
    step = run_step(state)
    steps = _completed(state, step)
    word = run_state(state, now_s)
    now_s = as_of_s(state, word, now_s)
    first_s = state.first_heard_s
    began_s = first_s if state.began_s is None else state.began_s
    rate = rates.steps_per_s(
        state.history.completed(step, KEPT_STEPS), None if word in ENDED else now_s
    )
    step_s, spread_s = rates.step_s(steps)
    tokens = rates.tokens_per_step(steps)
    findings = aged(know, now_s)
    count = dict.fromkeys(shapes.SEVERITIES, 0)
    for finding in findings:
        count[finding.severity] += 1
    heard_s = state.ranks.heard_s
    newest_s = float(np.nanmax(heard_s, initial=-np.inf))
    peak = int(state.ranks.memory_peak_bytes.max(initial=-1))
    trainer, device = _kind(state)
    return shapes.Overview(
        run=state.run,
        name=state.name,
        trainer=trainer,
        device=device,
        attempt=state.attempt,
        world_size=state.world_size or state.size(),
        state=word,
        step=step,
        up_s=0.0 if began_s is None else max(0.0, now_s - began_s),
        stalled_s=stalled_s(state, now_s) if word == "stalled" else None,
        data_age_s=max(0.0, now_s - newest_s) if np.isfinite(newest_s) else None,
        steps_per_s=rate,
        step_s=step_s,
        step_spread_s=spread_s,
        tokens_per_s=None if tokens is None or rate is None else tokens * rate,
        loss=_loss(steps),
        grad_norm=_grad_norm(state, steps),
        phase_s=rates.phase_means_s(steps),
        memory_peak_bytes=peak if peak >= 0 else None,
        overhead_s_per_step=_overhead_s(state),
        dropped=state.dropped(),
        bad_frames=state.bad_frames,
        hub_restarts=state.restarts,
        healthy_s=know.incidents.healthy_s(first_s, now_s),
        findings={str(severity): number for severity, number in count.items()},
        incidents=know.incidents.count,
        verdict=gravest(findings),
        last_checkpoint=None,
        exit_code=exit_code(state),
        nodes=nodes(state, now_s),
        history=shapes.History(
            step=[number for number, _ in steps],
            loss=[entry.mean_loss() for _, entry in steps],
            step_s=[entry.mean_step_s() for _, entry in steps],
        ),
        hub_note=know.note,
        ended_s=ended_s(state, word),
    )


def rank_detail(know: Knowledge, rank: int | str | None, now_s: float) -> shapes.RankDetail:
    """Everything known of one rank. Raises :class:`NoSuchView` for one that is not there."""
    state = know.state
    size = state.size()
    if not isinstance(rank, int) or not 0 <= rank < size:
        raise NoSuchView(f"there is no rank {rank}; this run has {size}")
    ranks, words = state.ranks, state.words
    now_s = as_of_s(state, run_state(state, now_s), now_s)
    steps = _completed(state, run_step(state))
    (row,) = rank_rows(state, now_s, [rank], _grad_norm(state, steps))
    identity = ranks.identity.item(rank)
    who = words.identities.values[identity] if identity >= 0 else None
    memory = words.memory.get(rank)
    raised = words.exceptions.get(rank)
    return shapes.RankDetail(
        row=row,
        facts=dict(who.facts) if who else {},
        trainer=who.trainer if who else "",
        device=who.device if who else "",
        groups=_groups(state, rank),
        phase_s=dict(zip(PHASES, ranks.phase_means_s[rank].tolist(), strict=True))
        if ranks.steps_seen[rank]
        else {},
        step_s_history=ranks.recent(rank),
        memory=msgspec.structs.asdict(memory) if memory is not None else {},
        cpu_s=_or_none(ranks.cpu_s.item(rank)),
        resident_bytes=_resident(ranks.resident_bytes.item(rank), memory),
        hub_offset_s=_or_none(state.clocks.offset_s.item(rank)),
        hub_offset_error_s=_or_none(state.clocks.error_s.item(rank)),
        probe_faults=dict(words.probe_faults.get(rank, {})),
        exception=raised.traceback if raised else "",
    )


def nodes(state: RunState, now_s: float) -> list[shapes.Node]:
    """The machines: those that ranks named, and those only a sentinel spoke of."""
    ranks = state.ranks
    hosts = ranks.host[: state.size()]
    names = state.words.hosts.values
    sentinels = state.nodes.by_host
    found = []
    named = set()
    for index, here in by_host(hosts):
        if index < 0:
            continue
        peak = int(ranks.memory_peak_bytes[here].max(initial=-1))
        named.add(names[index])
        found.append(
            _node(state, names[index], here.tolist(), peak, sentinels.get(names[index]), now_s)
        )
    strangers = [item for item in sentinels.items() if item[0] not in named]
    for host, sentinel in strangers[:MAX_WITHOUT_RANKS]:
        found.append(_node(state, host, [], -1, sentinel, now_s))
    found.sort(key=lambda node: (node.ranks[:1] or [state.size()], node.host))
    return found


def _node(
    state: RunState, host: str, ranks: list[int], peak: int, sentinel: Sentinel | None, now_s: float
) -> shapes.Node:
    node = shapes.Node(
        host=host,
        ranks=ranks,
        sentinel=sentinel_link(sentinel, now_s),
        memory_peak_bytes=peak if peak >= 0 else None,
    )
    if sentinel is None:
        node.gpu_note = "no sentinel on this node"
        return node
    node.gpus = [
        shapes.Gpu(
            **{**msgspec.structs.asdict(gpu), "throttle_reasons": list(gpu.throttle_reasons)}
        )
        for gpu in sentinel.gpus
    ]
    node.gpu_note = sentinel.gpu_note
    node.stack_note = sentinel.stack_note
    node.load_1min = sentinel.load_1min
    node.memory_available_bytes = sentinel.memory_available_bytes
    node.memory_limit_bytes = sentinel.memory_limit_bytes
    return node


def aged(know: Knowledge, now_s: float) -> list[shapes.Finding]:
    """The findings with their ages as of now."""
    gone_s = now_s - know.diagnosed_s
    return [
        msgspec.structs.replace(finding, since_s=max(0.0, finding.since_s + gone_s))
        for finding in know.findings
    ]


def _completed(state: RunState, step: int) -> list[tuple[int, StepEntry]]:
    return state.history.completed(step, HISTORY_STEPS)


def _loss(steps: rates.Steps) -> float | None:
    """Of the newest step whose loss has come off the device."""
    for _, entry in reversed(steps):
        loss = entry.mean_loss()
        if loss is not None:
            return loss
    return None


def _grad_norm(state: RunState, steps: rates.Steps) -> float | None:
    for _, entry in reversed(steps):
        norm = entry.global_grad_norm(state.world_size)
        if norm is not None:
            return norm
    return None


def _overhead_s(state: RunState) -> float | None:
    known = state.ranks.overhead_s[~np.isnan(state.ranks.overhead_s)]
    return float(known.mean()) if known.size else None


def _kind(state: RunState) -> tuple[str, str]:
    """Trainer and device as the lowest rank names them; the device without its number."""
    for index in state.ranks.identity[state.ranks.identity >= 0][:1].tolist():
        who = state.words.identities.values[index]
        return who.trainer, who.device.split(":")[0]
    return "", ""


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


def _or_none(value: float) -> float | None:
    return None if value != value else value


def encoded(shape: shapes.Shape) -> Any:
    """The body of a reply."""
    return msgspec.Raw(msgspec.msgpack.encode(shape))
