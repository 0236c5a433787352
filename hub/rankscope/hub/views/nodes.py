"""The machines of the run, for the overview."""

import msgspec

from rankscope.hub.liveness import by_host, sentinel_link
from rankscope.hub.state import RunState
from rankscope.hub.state.nodes import Sentinel
from rankscope.protocol import shapes

MAX_WITHOUT_RANKS = 512
"""Nodes shown of which only a sentinel spoke."""


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
