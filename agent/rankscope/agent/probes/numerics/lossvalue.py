"""Whether what a backward starts at is finite: the loss of one microbatch."""

from typing import Any, ClassVar

from torch import Tensor

from rankscope.agent.probes.base import Probe
from rankscope.agent.probes.numerics import finite
from rankscope.agent.tracing import recorded
from rankscope.protocol.messages import Stage


class LossValue(Probe):
    name: ClassVar[str] = "loss value"
    guarded: ClassVar[tuple[str, ...]] = ("on_backward",)

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        observer.backward_begins.append((self, self.on_backward))

    def on_backward(self, now: float, tensors: Any, args: Any, kwargs: Any) -> None:
        if recorded():
            return
        signs = self.observer.signs
        for tensor in (tensors,) if isinstance(tensors, Tensor) else tuple(tensors or ()):
            if not isinstance(tensor, Tensor) or not tensor.is_cpu:
                continue
            signs.looked(Stage.LOSS)
            if tensor.numel() == 1:
                number = float(tensor.detach().item())
                found = None if number - number == 0.0 else (word(number), 1)
            else:
                found = finite.trouble(finite.local(tensor))
            if found is not None:
                value, count = found
                microbatch = self.observer.microbatch
                signs.add(Stage.LOSS, microbatch=microbatch, value=value, count=count)
        signs.publish()


def word(number: float) -> str:
    """A number that is not finite, as a sign has it."""
    return "nan" if number != number else ("inf" if number > 0 else "-inf")
