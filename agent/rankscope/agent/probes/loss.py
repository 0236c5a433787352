"""The loss of a step: given to ``end_step``, or found: a scalar output, or what backward starts at.

A scalar that the model returns is preferred to the tensor whose ``backward`` is called, because
the latter is often scaled (by a GradScaler, or by the number of microbatches).
"""

from typing import Any, ClassVar

import torch

from rankscope.agent.probes.base import Probe


class Loss(Probe):
    name: ClassVar[str] = "loss"
    guarded: ClassVar[tuple[str, ...]] = ("on_output", "on_backward", "on_given")

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._given: Scalar | None = None
        self._outputs: list[Scalar] = []
        self._backwards: list[Scalar] = []

    def on_output(self, output: Any) -> None:
        found = scalar(_named_loss(output))
        if found is not None:
            self._outputs.append(found)

    def on_backward(self, tensors: Any) -> None:
        if isinstance(tensors, tuple | list) and len(tensors) == 1:
            tensors = tensors[0]
        found = scalar(tensors)
        if found is not None:
            self._backwards.append(found)

    def on_given(self, loss: Any) -> None:
        self._given = scalar(loss)

    def take(self) -> "Scalar | None":
        """The step's loss, and a clean slate. The mean where several microbatches had one."""
        outputs, backwards = self._outputs, self._backwards
        given, self._given = self._given, None
        self._outputs, self._backwards = [], []
        if given is not None:
            return given
        # An output that was never trained on (a discriminator's score) is no loss.
        chosen = outputs if backwards and len(outputs) == len(backwards) else backwards
        return mean(chosen)


Scalar = float | torch.Tensor
"""A float as it is, or a one-element CUDA tensor that is read later."""


def scalar(value: Any) -> Scalar | None:
    """``value`` as a number: read at once from the CPU, left on a CUDA device; else None."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        local = getattr(value, "to_local", None)
        if local is None or not all(place.is_replicate() for place in value.placements):
            return None
        value = local()
    if value.numel() != 1 or not value.is_floating_point():
        return None
    if value.device.type == "cpu":
        return float(value.detach().item())
    # A copy of its own: the loop may overwrite the tensor before it is read.
    return value.detach().to(torch.float32, copy=True) if value.device.type == "cuda" else None


def mean(values: list[Scalar]) -> Scalar | None:
    if not values:
        return None
    if len(values) == 1:
        return values[0]
    numbers = [value for value in values if isinstance(value, float)]
    if len(numbers) == len(values):
        return sum(numbers) / len(numbers)
    tensors = [value.reshape(()) for value in values if isinstance(value, torch.Tensor)]
    return torch.stack(tensors).mean() if len(tensors) == len(values) else None


def _named_loss(output: Any) -> Any:
    """The output itself, its part called ``loss``, or the only scalar of a tuple."""
    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, dict):
        return output.get("loss")
    if isinstance(output, tuple) and not hasattr(output, "loss"):
        scalars = [part for part in output if isinstance(part, torch.Tensor) and part.numel() == 1]
        return scalars[0] if len(scalars) == 1 else None
    return getattr(output, "loss", None)
