"""The loss of a step: given to ``end_step``, or found: a scalar output, or what backward starts at.

A number on the CPU is read at once, for it is there. One on a CUDA device is kept as it is and
read later, without waiting (``late``). Other devices have no such way, and no loss.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from rankscope.agent.calls import Removal, of_the_living
from rankscope.agent.probes.base import Probe
from rankscope.agent.tracing import recorded

Tensor = torch.Tensor

Scalar = float | torch.Tensor
"""A float as it is, or a copy of a one-element CUDA tensor."""

LOOK_AT_OUTPUTS = 3
"""So many training forwards without a scalar output, and no more outputs are looked at."""


class Loss(Probe):
    name: ClassVar[str] = "loss"
    guarded: ClassVar[tuple[str, ...]] = ("on_output", "on_backward", "given")

    __slots__ = ("_told", "backwards", "found", "outputs", "untrained")

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self.found = False
        """Whether there is something for who ends the step to take."""
        self.outputs: list[Scalar] = []
        self.backwards: list[Scalar] = []
        self.untrained = 0
        """Scalar outputs whose backward has not come yet."""
        self._told = False  # end_step was given the loss: nothing need be found
        self._misses = 0
        self._removals: list[Removal] = []
        observer.backward_begins.append((self, self.on_backward))

    def watch_model(self, model: Any, *, first: bool) -> None:
        if first and self._misses < LOOK_AT_OUTPUTS:
            self._removals.append(self.observer.calls.add(model, ends=(self, self.on_output)))

    def tidy(self) -> None:
        self._removals = of_the_living(self._removals)

    def uninstall(self) -> None:
        for remove in self._removals:
            remove()
        self._removals.clear()

    def on_output(self, now: float, module: Any, args: Any, output: Any) -> None:
        if self._told or not torch.is_grad_enabled() or recorded():
            return
        found = scalar(_loss_in(output))
        if found is not None:
            self.outputs.append(found)
            self.found = True
            self.untrained += 1
        elif not self.outputs:
            self._misses += 1
            if self._misses >= LOOK_AT_OUTPUTS:  # this model returns none: look no more
                self.uninstall()

    def on_backward(self, now: float, tensors: Any, args: Any, kwargs: Any) -> None:
        value = self.observer.loss_value
        read, value.read = value.read, None
        if self._told:
            return
        if read is not None and read[0] is tensors and type(read[1]) is float:
            if self.untrained:
                self.untrained -= 1
            else:
                self.backwards.append(read[1])
                self.found = True
            return
        if recorded():
            return
        if self.untrained:  # the model has returned this loss itself, unscaled
            self.untrained -= 1
            return
        if type(tensors) is not Tensor and isinstance(tensors, tuple | list) and len(tensors) == 1:
            tensors = tensors[0]
        found = scalar(tensors)
        if found is not None:
            self.backwards.append(found)
            self.found = True

    def given(self, loss: Any) -> Scalar | None:
        """The loss that ``end_step`` was given, as a number."""
        found = scalar(loss)
        self._told = self._told or found is not None
        return found

    def on_device(
        self, given: Any, outputs: Sequence[Scalar], backwards: Sequence[Scalar]
    ) -> torch.Tensor | None:
        """The step's loss where it is on the device; None where it is numbers (or nothing)."""
        chosen = [given] if given is not None else outputs or backwards
        tensors = [one.reshape(()) for one in chosen if isinstance(one, torch.Tensor)]
        if not tensors or len(tensors) < len(chosen):
            return None
        return tensors[0] if len(tensors) == 1 else torch.stack(tensors).mean()


def scalar(value: Any) -> Scalar | None:
    """``value`` as a number: read at once from the CPU, left on a CUDA device; else None."""
    if type(value) is Tensor:
        # In the order of what is common, as each of these costs a cold cache line or two.
        if value.is_cpu:
            if value.dim() and value.numel() != 1:
                return None
            return value.item() if value.dtype.is_floating_point else None
        if value.is_cuda and value.numel() == 1 and value.is_floating_point():
            # A copy of its own: the loop may overwrite the tensor before it is read.
            return value.detach().to(torch.float32, copy=True)
        return None
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, torch.nn.Parameter):
        return scalar(value.detach())
    local = getattr(value, "to_local", None)  # a DTensor, where it is the same on all ranks
    if local is not None and all(place.is_replicate() for place in value.placements):
        return scalar(local())
    return None


def _loss_in(output: Any) -> Any:
    """A scalar output, its part called ``loss``, or the only scalar of a tuple."""
    if isinstance(output, torch.Tensor):
        return output if output.dim() == 0 else None
    if isinstance(output, dict):
        return output.get("loss")
    if isinstance(output, tuple) and not hasattr(output, "loss"):
        scalars = [part for part in output if isinstance(part, torch.Tensor) and part.dim() == 0]
        return scalars[0] if len(scalars) == 1 else None
    return getattr(output, "loss", None)
