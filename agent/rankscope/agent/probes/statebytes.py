"""What a rank keeps for training, in bytes, and what arithmetic says that it should be.

Only shapes and element types are read, never what a tensor holds: nothing waits for a device. Done
after the second step of an optimizer, when its state is there, and then rarely.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import torch

from rankscope.agent.probes.base import Probe

FIRST, RARELY = 2, 16
"""Counted at update 2, and at 16, 256, 4096, …"""

MOMENTS = {
    "Adam": 2,
    "AdamW": 2,
    "NAdam": 2,
    "RAdam": 2,
    "Adamax": 2,
    "Adagrad": 1,
}
"""Values an optimizer keeps for each of a parameter's, by its class."""

SPREAD_STATE = "ZeroRedundancyOptimizer"


class Expected(NamedTuple):
    """Of the whole model, bytes a parameter."""

    parameters: int
    parameter: float
    gradient: float
    optimizer: float


class StateBytes(Probe):
    """Counted on the training thread; told with the memory, and with the facts."""

    name: ClassVar[str] = "state"
    guarded: ClassVar[tuple[str, ...]] = ("on_update", "facts")

    __slots__ = ("_due", "_facts", "_updates", "bytes")

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self.bytes: int | None = None
        """Parameters, gradients and optimizer state that this rank holds."""
        self._updates = 0
        self._due = FIRST
        self._facts: dict[str, str] = {}
        observer.update_ends.append((self, self.on_update))

    def on_update(self, now: float, optimizer: Any, args: Any, kwargs: Any) -> None:
        """The first optimizer has made its step; gradients are still there."""
        updates = self._updates = self._updates + 1
        if updates < self._due:
            return
        self._due = RARELY if updates < RARELY else updates * RARELY
        models, optimizers = self.observer.watched()
        parameters = held(models, optimizers)
        self.bytes = state_bytes(parameters, optimizers)
        facts = expectation(parameters, optimizers, self.observer.facts.trainer)
        if facts != self._facts:
            self._facts = facts
            self.observer.facts_changed = True

    def facts(self) -> dict[str, str]:
        return dict(self._facts)


def held(models: Iterable[Any], optimizers: Iterable[Any]) -> list[Any]:
    """Every parameter once, those of models that no optimizer has, too."""
    found = {id(p): p for model in models for p in model.parameters()}
    for optimizer in optimizers:
        found |= {id(p): p for group in optimizer.param_groups for p in group["params"]}
    return list(found.values())


def local_bytes(tensor: Any) -> int:
    """Of what this rank holds of ``tensor``."""
    part = getattr(tensor, "_local_tensor", tensor)
    if part.layout is not torch.strided:
        return 0
    return int(part.numel() * part.element_size())


def state_bytes(parameters: Iterable[Any], optimizers: Iterable[Any]) -> int:
    """Parameters, gradients and what the optimizers keep of the parameters' size, on this rank."""
    total = 0
    for parameter in parameters:
        total += local_bytes(parameter)
        if parameter.grad is not None:
            total += local_bytes(parameter.grad)
    for optimizer in optimizers:
        for parameter, state in getattr(optimizer, "state", {}).items():
            shape = getattr(parameter, "shape", None)
            total += sum(
                local_bytes(value)
                for value in state.values()
                if isinstance(value, torch.Tensor) and value.shape == shape
            )
    return total


def expectation(parameters: list[Any], optimizers: list[Any], trainer: str) -> dict[str, str]:
    """What a hub needs to work out the same by the table of memory; empty where that is not known.

    ``parameters`` of the whole model, ``state_factors`` in bytes a parameter (parameter, gradient,
    optimizer), and over what they are spread.
    """
    spread = spread_of(parameters, optimizers, trainer)
    expected = factors(parameters, optimizers)
    if not spread or expected is None:
        return {}
    each = ",".join(f"{value:.6g}" for value in expected[1:])
    return {"parameters": str(expected.parameters), "state_factors": each, "spread": spread}


def factors(parameters: list[Any], optimizers: list[Any]) -> Expected | None:
    """None for optimizers of which it is not known what they keep."""
    widths: dict[int, int] = {}
    for optimizer in optimizers:
        kept = getattr(optimizer, "optim", optimizer)
        for group in kept.param_groups:
            moments = moments_of(type(kept).__name__, group)
            if moments is None:
                return None
            widths |= {id(parameter): moments for parameter in group["params"]}
    whole = sum(parameter.numel() for parameter in parameters)
    if not whole:
        return None
    sizes = [(p, p.numel() * p.element_size()) for p in parameters]
    trained = [(p, size) for p, size in sizes if id(p) in widths and p.requires_grad]
    return Expected(
        whole,
        sum(size for _, size in sizes) / whole,
        sum(size for _, size in trained) / whole,
        sum(size * widths[id(p)] for p, size in trained) / whole,
    )


def moments_of(optimizer: str, group: Any) -> int | None:
    if optimizer in ("SGD", "RMSprop"):
        squares = optimizer == "RMSprop"
        centred = bool(group.get("centered"))
        return int(bool(group.get("momentum"))) + squares + centred
    moments = MOMENTS.get(optimizer)
    if moments is None:
        return None
    return moments + bool(group.get("amsgrad"))


def spread_of(parameters: list[Any], optimizers: list[Any], trainer: str) -> str:
    """``single``, ``ddp``, ``zero1``, ``fsdp`` or ``hybrid N`` (ranks in a group).

    Empty where parameters lie in more than one way, or in none that can be seen.
    """
    if trainer == "fsdp2":
        ways = {shards(parameter) for parameter in parameters}
        if len(ways) != 1:
            return ""
        parts, whole = ways.pop()
        return "fsdp" if parts == whole else f"hybrid {parts}"
    if trainer == "ddp":
        spread = any(type(optimizer).__name__ == SPREAD_STATE for optimizer in optimizers)
        return "zero1" if spread else "ddp"
    return "single" if trainer == "plain" else ""


def shards(parameter: Any) -> tuple[int, int]:
    """Over how many ranks ``parameter`` is cut, and how many have a part or a copy of it."""
    parts, whole = 1, 1
    mesh = getattr(parameter, "device_mesh", None)
    for dimension, placement in enumerate(getattr(parameter, "placements", ())):
        size = mesh.size(dimension) if mesh is not None else 1
        whole *= size
        if placement.is_shard():
            parts *= size
    return parts, whole
