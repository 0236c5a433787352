"""The machines of the run, for the overview."""

from collections import Counter

import msgspec
import numpy as np

from rankscope.hub.liveness import by_host, sentinel_link
from rankscope.hub.state import RunState
from rankscope.hub.state.nodes import Sentinel
from rankscope.protocol import shapes

MAX_WITHOUT_RANKS = 512
"""Nodes shown of which only a sentinel spoke."""

MAX_NAMED = 3


def count(state: RunState) -> int:
    """How many machines there are."""
    hosts = state.ranks.host[: state.size()]
    known = np.unique(hosts[hosts >= 0]).tolist()
    names = state.words.hosts.values
    strangers = len(state.nodes.by_host.keys() - {names[index] for index in known})
    return len(known) + min(strangers, MAX_WITHOUT_RANKS)


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


def nodes_in_short(state: RunState, now_s: float) -> shapes.NodesInShort:
    """The same in numbers that do not grow with the fleet."""
    hosts = state.ranks.host[: state.size()]
    names = state.words.hosts.values
    sentinels = state.nodes.by_host
    known = [names[index] for index in np.unique(hosts[hosts >= 0]).tolist()]
    strangers = sorted(sentinels.keys() - set(known))[:MAX_WITHOUT_RANKS]
    short = shapes.NodesInShort(count=len(known) + len(strangers))
    notes: Counter[str] = Counter()
    used: list[float] = []
    warm: list[float] = []
    for host in (*known, *strangers):
        sentinel = sentinels.get(host)
        if sentinel_link(sentinel, now_s) != "up":
            short.without_sentinel += 1
            if len(short.hosts) < MAX_NAMED:
                short.hosts.append(host)
        if sentinel is None:
            continue
        if sentinel.gpu_note and not sentinel.gpus:
            notes[f"GPU: {sentinel.gpu_note.removeprefix('none: ')}"] += 1
        if sentinel.stack_note:
            notes[f"stacks: {sentinel.stack_note}"] += 1
        short.gpus += len(sentinel.gpus)
        for gpu in sentinel.gpus:
            if gpu.utilisation_percent is not None:
                used.append(gpu.utilisation_percent)
            if gpu.temperature_c is not None:
                warm.append(gpu.temperature_c)
    short.gpu_utilisation_percent = sum(used) / len(used) if used else None
    short.gpu_temperature_c = max(warm, default=None)
    short.notes = dict(notes.most_common(MAX_NAMED))
    return short


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
