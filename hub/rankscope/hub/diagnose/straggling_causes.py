"""What a sentinel sees of a slow rank's node and GPU that may be the cause. Pure."""

import numpy as np

from rankscope.hub.rankgpus import gpu_of
from rankscope.hub.state import RunState

OF_IT = 0.5
"""It is for want of a core when waiting for one makes up so much of what a rank takes longer."""

TOLD_SHARE = 0.1

LOADED = 1.5
"""Load for each rank of a node from which on its processors are short."""


def wants_a_core(state: RunState, rank: int, excess_s: float, step_s: float) -> bool:
    """Whether it is ``excess_s`` longer in each step because other programs have its core."""
    shares = state.ranks.queued_share[: state.size()]
    own = float(shares[rank])
    others = np.delete(shares, rank)
    others = others[~np.isnan(others)]
    usual = float(np.median(others)) if others.size else 0.0
    return (own - usual) * step_s >= OF_IT * excess_s  # false for NaN


def causes(state: RunState, rank: int) -> list[str]:
    """In words; none where nothing is known that would explain it."""
    found = []
    share = float(state.ranks.queued_share[rank])
    if share >= TOLD_SHARE:
        found.append(
            f"rank {rank} could run and has no core for {share:.0%} of the time: other programs "
            f"on {state.host(rank)} have them"
        )
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
