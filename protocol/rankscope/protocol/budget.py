"""What a training state takes in memory, and what a step sends: arithmetic, and no measurement.

Counts are parameters and ranks, sizes are bytes (decimal GB where they are printed), volumes are
bytes that each rank sends for one update. The inventory of mixed-precision Adam is that of the ZeRO
paper (Rajbhandari et al., 2020, section 3.1): 2 bytes of parameter and 2 of gradient in 16 bits,
and 12 of optimizer state in fp32 (a copy of the parameter and two moments). Other inventories are
an argument.
"""

from collections.abc import Mapping
from dataclasses import dataclass

SCHEMES = ("single", "ddp", "zero1", "zero2", "fsdp")
"""Ways of spreading the state, from none at all to all of it."""

HYBRID = "hybrid"
"""All of it within a group of ranks, and the groups alike."""


@dataclass(frozen=True)
class Inventory:
    """Bytes a parameter."""

    parameter: float = 2.0
    gradient: float = 2.0
    optimizer: float = 12.0

    @property
    def all(self) -> float:
        return self.parameter + self.gradient + self.optimizer


MIXED_PRECISION_ADAM = Inventory()
FP32_ADAM = Inventory(4.0, 4.0, 8.0)
"""Stored in fp32, without a copy: the parameter, its gradient and two moments."""


@dataclass(frozen=True)
class Extra:
    """What comes on top of the state while a step runs, in bytes."""

    activation: float = 0.0
    gather: float = 0.0
    """The largest group of parameters that is gathered at once; for schemes that shard them."""
    other: float = 0.0
    """The context, the allocator's waste, buckets, …"""


def divisors(scheme: str, ranks: int, shard: int | None = None) -> tuple[int, int, int]:
    """Over how many ranks (parameters, gradients, optimizer state) of ``scheme`` are spread.

    Raises ``ValueError`` for a scheme there is none of, a count below one, or a ``shard`` (ranks in
    a group of ``hybrid``) that does not divide ``ranks``.
    """
    if ranks < 1:
        raise ValueError(f"{ranks} ranks: there must be at least one")
    match scheme:
        case "single" | "ddp":
            return 1, 1, 1
        case "zero1":
            return 1, 1, ranks
        case "zero2":
            return 1, ranks, ranks
        case "fsdp":
            return ranks, ranks, ranks
        case "hybrid":
            if shard is None or shard < 1 or ranks % shard:
                raise ValueError(f"groups of {shard} ranks do not divide {ranks}")
            return shard, shard, shard
    raise ValueError(f"there is no scheme {scheme!r}; there are {', '.join((*SCHEMES, HYBRID))}")


def parameter_bytes(
    scheme: str, ranks: int, inventory: Inventory = MIXED_PRECISION_ADAM, shard: int | None = None
) -> float:
    """Bytes of state a rank holds for each parameter of the model."""
    parameters, gradients, states = divisors(scheme, ranks, shard)
    return (
        inventory.parameter / parameters
        + inventory.gradient / gradients
        + inventory.optimizer / states
    )


def state_bytes(
    scheme: str,
    parameters: float,
    ranks: int,
    inventory: Inventory = MIXED_PRECISION_ADAM,
    shard: int | None = None,
) -> float:
    """Bytes a rank holds between steps."""
    return parameters * parameter_bytes(scheme, ranks, inventory, shard)


def extra_bytes(scheme: str, extra: Extra) -> float:
    """Bytes on top of the state while a step runs; only who shards parameters gathers them."""
    gather = extra.gather if scheme in ("fsdp", HYBRID) else 0.0
    return extra.activation + extra.other + gather


def largest_parameters(
    scheme: str,
    ranks: int,
    device_bytes: float,
    inventory: Inventory = MIXED_PRECISION_ADAM,
    extra: Extra = Extra(),
    shard: int | None = None,
) -> int:
    """The largest model, in parameters, whose step fits ``device_bytes`` on each rank; 0: none."""
    room = device_bytes - extra_bytes(scheme, extra)
    return max(0, int(room / parameter_bytes(scheme, ranks, inventory, shard)))


def all_reduce_bytes(size_bytes: float, ranks: int) -> float:
    """What each rank sends to reduce ``size_bytes`` over a ring: 2·(R−1)/R of it.

    A reduce-scatter and an all-gather of (R−1)/R each (Patarasuk and Yuan, 2009).
    """
    return 2 * ring_bytes(size_bytes, ranks)


def ring_bytes(size_bytes: float, ranks: int) -> float:
    """What each rank sends for one reduce-scatter or one all-gather: (R−1)/R of ``size_bytes``."""
    if ranks < 1:
        raise ValueError(f"{ranks} ranks: there must be at least one")
    return size_bytes * (ranks - 1) / ranks


def sent_bytes(
    scheme: str,
    parameters: float,
    ranks: int,
    inventory: Inventory = MIXED_PRECISION_ADAM,
    shard: int | None = None,
    *,
    gathers: int = 2,
) -> float:
    """What each rank sends for one update without accumulation, by the ring formulas.

    Sharded parameters are gathered twice (forward, and again backward), or once where they are
    kept in between, and gradients reduced and scattered; in a hybrid the shards' gradients are
    then reduced between the groups.
    """
    divisors(scheme, ranks, shard)
    gradient, weights = parameters * inventory.gradient, parameters * inventory.parameter
    match scheme:
        case "single":
            return 0.0
        case "ddp":
            return all_reduce_bytes(gradient, ranks)
        case "zero1" | "zero2":
            return ring_bytes(gradient, ranks) + ring_bytes(weights, ranks)
        case "fsdp":
            return ring_bytes(gradient, ranks) + gathers * ring_bytes(weights, ranks)
    assert shard is not None
    within = ring_bytes(gradient, shard) + gathers * ring_bytes(weights, shard)
    return within + all_reduce_bytes(gradient / shard, ranks // shard)


def table(
    parameters: float,
    ranks: int,
    *,
    inventory: Inventory = MIXED_PRECISION_ADAM,
    extra: Extra = Extra(),
    device_bytes: float | None = None,
    shard: int | None = None,
) -> Mapping[str, Mapping[str, float | int]]:
    """Everything for every scheme: what ``rankscope budget --json`` prints.

    ``largest_params`` is empty without ``device_bytes``.
    """
    schemes = [*SCHEMES, *([HYBRID] if shard is not None else [])]
    state = {one: state_bytes(one, parameters, ranks, inventory, shard) for one in schemes}
    peak = {one: state[one] + extra_bytes(one, extra) for one in schemes}
    largest: dict[str, float | int] = {}
    if device_bytes is not None:
        largest = {
            one: largest_parameters(one, ranks, device_bytes, inventory, extra, shard)
            for one in schemes
        }
    sent = {one: sent_bytes(one, parameters, ranks, inventory, shard) for one in schemes}
    return {"state_bytes": state, "peak_bytes": peak, "largest_params": largest, "sent_bytes": sent}
