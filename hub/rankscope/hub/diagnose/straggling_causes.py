"""What a sentinel sees of a slow rank's node and GPU that may be the cause. Pure."""

from rankscope.hub.state import RunState
from rankscope.protocol.messages import GpuSample

LOADED = 1.5
"""Load for each rank of a node from which on its processors are short."""


def gpu_of(state: RunState, rank: int) -> GpuSample | None:
    """The GPU that the rank says it uses, as its node's sentinel reads it.

    By the number in ``cuda:N``, which is that of the machine unless ``CUDA_VISIBLE_DEVICES`` hides
    some; where it does, ranks have one device each, called 0, and their local rank is taken.
    """
    identity = state.ranks.identity.item(rank)
    sentinel = state.nodes.by_host.get(state.host(rank))
    if identity < 0 or sentinel is None:
        return None
    kind, _, number = state.words.identities.values[identity].device.partition(":")
    if kind != "cuda" or not number.isdigit():
        return None
    index = max(int(number), state.ranks.local_rank.item(rank))
    return next((gpu for gpu in sentinel.gpus if gpu.index == index), None)


def causes(state: RunState, rank: int) -> list[str]:
    """In words; none where nothing is known that would explain it."""
    found = []
    gpu = gpu_of(state, rank)
    if gpu is not None and gpu.throttle_reasons:
        reasons = ", ".join(reason.replace("_", " ") for reason in gpu.throttle_reasons)
        found.append(f"GPU {gpu.index} of {state.host(rank)} is throttled: {reasons}")
    sentinel = state.nodes.by_host.get(state.host(rank))
    if sentinel is not None and sentinel.load_1min is not None:
        size = state.size()
        here = int((state.ranks.host[:size] == state.ranks.host[rank]).sum())
        if sentinel.load_1min > LOADED * max(here, 1) + 1:
            found.append(
                f"{sentinel.host} has a load of {sentinel.load_1min:.1f} for {here} "
                f"rank{'s' if here > 1 else ''}"
            )
    return found
