"""Which GPU a rank computes on, and which ranks a GPU computes for."""

from rankscope.hub.state import RunState
from rankscope.protocol.messages import GpuSample


def index_of(state: RunState, rank: int) -> int | None:
    """The number of the rank's GPU on its machine; None where it has none.

    By the number in ``cuda:N``, which is that of the machine unless ``CUDA_VISIBLE_DEVICES`` hides
    some. Where it does, ranks have one device each, called 0, and their local rank is taken.
    """
    identity = state.ranks.identity.item(rank)
    if identity < 0:
        return None
    kind, _, number = state.words.identities.values[identity].device.partition(":")
    if kind != "cuda" or not number.isdigit():
        return None
    return max(int(number), state.ranks.local_rank.item(rank))


def gpu_of(state: RunState, rank: int) -> GpuSample | None:
    """The newest reading of the rank's GPU."""
    index = index_of(state, rank)
    sentinel = state.nodes.by_host.get(state.host(rank))
    if index is None or sentinel is None:
        return None
    return next((gpu for gpu in sentinel.gpus if gpu.index == index), None)


def ranks_on(state: RunState, wanted: set[tuple[str, int]]) -> dict[tuple[str, int], list[int]]:
    """The ranks of each of the ``wanted`` (host, index of the GPU)."""
    found: dict[tuple[str, int], list[int]] = {key: [] for key in wanted}
    hosts = {host for host, _ in wanted}
    if not hosts:
        return found
    for rank in range(state.size()):
        host = state.host(rank)
        if host in hosts:
            index = index_of(state, rank)
            if index is not None and (host, index) in found:
                found[host, index].append(rank)
    return found
