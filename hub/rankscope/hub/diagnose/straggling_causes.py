"""What a sentinel sees of a slow rank's node and GPU that may be the cause. Pure."""

from rankscope.hub.rankgpus import gpu_of
from rankscope.hub.state import RunState

LOADED = 1.5
"""Load for each rank of a node from which on its processors are short."""


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
