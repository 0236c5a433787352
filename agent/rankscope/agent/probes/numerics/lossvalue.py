"""Whether what a backward starts at is finite: the loss of one microbatch."""

from typing import Any, ClassVar

from torch import Tensor

from rankscope.agent.probes.base import Probe
from rankscope.agent.probes.numerics import finite
from rankscope.agent.probes.numerics.ondevice import capturing
from rankscope.agent.tracing import recorded
from rankscope.protocol.messages import Stage


class LossValue(Probe):
    name: ClassVar[str] = "loss value"
    guarded: ClassVar[tuple[str, ...]] = ("on_backward",)
    numbers: ClassVar[bool] = True

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._signs = observer.signs
        self.read: tuple[Any, float] | None = None
        """A loss and its value, for whoever comes next in the same event and takes it away."""
        observer.backward_begins.append((self, self.on_backward))

    def on_backward(self, now: float, tensors: Any, args: Any, kwargs: Any) -> None:
        if type(tensors) is Tensor and tensors.is_cpu and not tensors.dim():
            if recorded():
                return
            number = tensors.item()
            self.read = tensors, number
            self._signs.looked(Stage.LOSS)
            if number - number == 0.0:
                return
            self._bad(word(number), 1)
        elif not recorded():
            for tensor in (tensors,) if isinstance(tensors, Tensor) else tuple(tensors or ()):
                self._look(tensor)
        self._signs.publish()

    def _look(self, tensor: Any) -> None:
        if not isinstance(tensor, Tensor):
            return
        if tensor.is_cuda and not capturing():
            device = self.observer.forward.device
            device.note(Stage.LOSS, "", self.observer.microbatch, finite.local(tensor))
        if not tensor.is_cpu:
            return
        self._signs.looked(Stage.LOSS)
        found = finite.trouble(finite.local(tensor))
        if found is not None:
            self._bad(*found)

    def _bad(self, value: str, count: int) -> None:
        microbatch = self.observer.microbatch
        self._signs.add(Stage.LOSS, microbatch=microbatch, value=value, count=count)


def word(number: float) -> str:
    """A number that is not finite, as a sign has it."""
    return "nan" if number != number else ("inf" if number > 0 else "-inf")
