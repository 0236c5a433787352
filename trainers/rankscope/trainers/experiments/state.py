"""What a rank keeps from update to update, by what it is."""

from torch import Tensor, nn
from torch.optim import Optimizer

from rankscope.protocol.experiments import StateBytes
from rankscope.trainers.experiments.tensorbytes import storage_bytes


def state_bytes(model: nn.Module, optimizer: Optimizer) -> StateBytes:
    """Bytes of the storages of this rank's part of everything, each storage once.

    To be asked while there are gradients: between an optimizer's step and ``zero_grad``.
    """
    seen: set[int] = set()
    parameters = list(model.parameters())
    state = [
        (parameter, value)
        for parameter in parameters
        for value in optimizer.state.get(parameter, {}).values()
        if isinstance(value, Tensor)
    ]
    gradients = [p.grad for p in parameters if p.grad is not None]
    return StateBytes(
        parameters=storage_bytes(parameters, seen),
        gradients=storage_bytes(gradients, seen),
        optimizer=storage_bytes([v for p, v in state if v.shape == p.shape], seen),
        counters=storage_bytes([v for p, v in state if v.shape != p.shape], seen),
        buffers=storage_bytes(model.buffers(), seen),
    )


def placements(model: nn.Module) -> dict[str, int]:
    """How parameters lie over the ranks, ``Replicate`` or ``Shard(0)``: tensors of each kind."""
    found: dict[str, int] = {}
    for parameter in model.parameters():
        laid = getattr(parameter, "placements", None)
        name = "Replicate" if laid is None else ", ".join(map(_name, laid))
        found[name] = found.get(name, 0) + 1
    return found


def _name(placement: object) -> str:
    dim = getattr(placement, "dim", None)
    return type(placement).__name__ + ("" if dim is None else f"({dim})")
