"""What sentinels' messages do to the state: one function a kind, listed in ``run.py``."""

import math
from typing import TYPE_CHECKING

from rankscope.hub.state import silence
from rankscope.hub.state.fromranks import unobserved_ended
from rankscope.hub.state.habits import left_out
from rankscope.hub.state.moved import last_s, moved_of_s
from rankscope.hub.state.nodes import MAX_NODES, LateEnd, Sentinel
from rankscope.hub.state.plausible import BadMessage, lie_of_node
from rankscope.hub.state.ranks import EXCEPTION, FINISHED, NO_GOODBYE
from rankscope.hub.state.sequences import AGAIN, FRESH
from rankscope.protocol import messages as m

if TYPE_CHECKING:
    from rankscope.hub.state.run import NodeHandler, RunState

MAX_LATE_ENDS = 256


def take(state: "RunState", message: m.FromNode, handler: "NodeHandler", received_s: float) -> bool:
    """Take in one message; False when it was known already. Raises :class:`BadMessage`."""
    known = state.nodes.sentinels.get(message.node)
    last_seq = state.node_sequences.cells.last[known.index] if known else 0
    lie = lie_of_node(message, state.run, last_seq)
    if lie:
        raise BadMessage(lie)
    sentinel = known or _new_sentinel(state, message.node)
    index = sentinel.index
    arrived = state.node_sequences.arrived(index, message.seq)
    if arrived == AGAIN:
        return False
    state.node_clocks.heard(index, message.t_s, received_s)
    if arrived == FRESH or isinstance(message, m.ProcessEnded):
        handler(state, message, sentinel, received_s)
    before = state.nodes.by_host.get(sentinel.host)
    if before is not None:
        host = state.words.hosts.index(sentinel.host)
        silence.node_is_back(state.ranks, host, before, received_s)
    state.nodes.heard(sentinel, received_s)
    state.version += 1
    state.head_changed = state.version
    return True


def nothing(state: "RunState", message: m.FromNode, sentinel: Sentinel, received_s: float) -> None:
    """Of a kind that no part keeps: it is numbered all the same."""


def _new_sentinel(state: "RunState", node: str) -> Sentinel:
    sentinel = state.nodes.get(node)
    if sentinel is None:
        raise BadMessage(f"sentinel {node}: there are {MAX_NODES} already")
    state.node_sequences.reserve(sentinel.index + 1)
    state.node_clocks.reserve(sentinel.index + 1)
    state.node_sequences.restart(sentinel.index)
    state.node_clocks.clear(sentinel.index)
    return sentinel


def node_hello(
    state: "RunState", hello: m.NodeHello, sentinel: Sentinel, received_s: float
) -> None:
    state.nodes.hello(sentinel, hello)


def node_report(
    state: "RunState", report: m.NodeReport, sentinel: Sentinel, received_s: float
) -> None:
    state.nodes.report(sentinel, report)
    at_s = state.node_clocks.place(sentinel.index, report.t_s, received_s)
    state.gpus.readings(sentinel.host, report.gpus, received_s)
    ranks = state.ranks
    for sample in report.processes:
        rank = sample.rank
        if rank >= ranks.size or not state.lives.is_of(state, sentinel.host, sample):
            continue
        pid = ranks.pid.item(rank)
        if 0 <= pid != sample.pid:
            continue  # an earlier process of that rank
        if not math.isnan(ranks.ended_s.item(rank)) or sample.state == "ended":
            if sample.state == "ended":  # process_ended said how, and before this came what it left
                state.operations.left(rank, received_s)
            continue
        if ranks.sampled(sample, at_s, received_s):
            state.urgent = True
            state.version += 1
            ranks.changed[rank] = state.version


def process_ended(
    state: "RunState", end: m.ProcessEnded, sentinel: Sentinel, received_s: float
) -> None:
    at_s = state.node_clocks.place(sentinel.index, end.event_t_s, received_s)
    rank = end.rank
    if end.attempt < state.attempt and not state.lives.is_of(state, sentinel.host, end):
        _late_end(state, end, sentinel, at_s)
        return
    if end.attempt > state.attempt:
        state.begin_attempt(end.attempt)
    if rank >= state.ranks.size:
        state.reserve(max(rank + 1, state.world_size))
    pid = state.ranks.pid.item(rank)
    if 0 <= pid != end.pid and state.ranks.known[rank]:
        return  # an earlier process of that rank
    state.ranks.ended(end, at_s, received_s)
    unobserved_ended(state.ranks, rank)
    if end.finished and state.ranks.goodbye[rank] == NO_GOODBYE:
        state.ranks.goodbye[rank] = FINISHED  # it has said so, and was not heard
        state.ranks.goodbye_s[rank] = at_s
        state.ranks.unheard[rank] = True
    state.words.how_ended.setdefault(rank, f"the sentinel on {sentinel.host}")
    state.news()
    state.ranks.changed[rank] = state.version


def _late_end(state: "RunState", end: m.ProcessEnded, sentinel: Sentinel, at_s: float) -> None:
    # SIGTERM and SIGINT are how a launcher ends an attempt: no news.
    bad = end.signal not in (None, 0, 2, 15) or end.exit_code not in (0, None)
    known = any(e.attempt == end.attempt and e.rank == end.rank for e in state.late_ends)
    if bad and not known and len(state.late_ends) < MAX_LATE_ENDS:
        state.late_ends.append(
            LateEnd(
                end.attempt,
                end.rank,
                sentinel.host,
                at_s,
                end.exit_code,
                end.signal,
                end.oom_killed,
            )
        )
        state.news()


def foreign_stacks(
    state: "RunState", stacks: m.ForeignStacks, sentinel: Sentinel, received_s: float
) -> None:
    rank = stacks.rank
    if rank >= state.ranks.size or not state.lives.is_of(state, sentinel.host, stacks):
        return
    pid = state.ranks.pid.item(rank)
    if 0 <= pid != stacks.pid:
        return  # an earlier process of that rank
    raised = state.ranks.goodbye[rank] == EXCEPTION
    leaves = raised and state.stacks.stands(rank, last_s(state, rank))
    if (stacks.threads or stacks.error) and not leaves:
        # Of a process that an exception, or Ctrl-C, has ended: where it stood is known, and this is
        # how its interpreter leaves.
        state.stacks.seen(stacks, received_s, moved_of_s(state, rank))
    state.operations.seen(stacks, received_s)
    if stacks.operations and not stacks.threads:  # it has ended: there is no more to come
        for group, (entered, _, _) in state.words.collectives.get(rank, {}).items():
            state.operations.complete(rank, group, entered)
        missed = left_out(stacks.operations)
        if missed is not None:
            state.operations.complete(rank, *missed)
    state.progress.version += 1
    state.news()
