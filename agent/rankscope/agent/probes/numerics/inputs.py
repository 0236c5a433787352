"""The input batch: whether it is finite, at every microbatch, and its fingerprint."""

import time
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from rankscope.agent.probes.base import Probe
from rankscope.agent.probes.numerics import batch, finite
from rankscope.agent.tracing import recorded
from rankscope.protocol.messages import Stage

MAX_WAITING = 4096
"""With so many notes unread nobody is there to hash samples, and they would only take memory."""


class Inputs(Probe):
    """Looks at what the first model is called with, in training."""

    name: ClassVar[str] = "inputs"
    guarded: ClassVar[tuple[str, ...]] = ("on_begin",)

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._removals: list[Callable[[], None]] = []

    def watch_model(self, model: Any, *, first: bool) -> None:
        if first:
            self._removals.append(self.observer.calls.add(model, begins=(self, self.on_begin)))

    def uninstall(self) -> None:
        for remove in self._removals:
            remove()
        self._removals.clear()

    def on_begin(self, now: float, model: Any, args: Any, kwargs: Any) -> None:
        if not torch.is_grad_enabled() or recorded():
            return
        observer = self.observer
        floating: list[tuple[str, torch.Tensor]] = []
        samples: list[batch.Sample] = []
        unread = False
        for place, tensor in batch.tensors(args, kwargs):
            if finite.readable(tensor):
                floating.append((place, tensor))
            elif tensor.is_floating_point() or tensor.is_complex():
                unread = True
            found = batch.sample(tensor)
            if found is not None:
                samples.append(found)
        if not unread:  # integers are finite
            observer.signs.looked(Stage.INPUT)
        if floating:
            self._look(floating)
        if samples and len(observer.noted) < MAX_WAITING:
            more = observer.more
            if "fingerprint" in more:
                more["fingerprint"] += samples
            else:
                more["fingerprint"] = samples

    def _look(self, floating: list[tuple[str, torch.Tensor]]) -> None:
        observer = self.observer
        began_s = time.monotonic()
        found = finite.troubles([tensor for _, tensor in floating])
        observer.kernel_s += time.monotonic() - began_s
        for index, (value, count) in found:
            observer.signs.add(
                Stage.INPUT,
                floating[index][0],
                microbatch=observer.microbatch,
                value=value,
                count=count,
            )
        if found:
            observer.signs.publish()
