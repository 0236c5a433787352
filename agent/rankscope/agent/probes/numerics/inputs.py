"""The input batch: whether it is finite, at every microbatch, and its fingerprint."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch

from rankscope.agent.probes.base import Probe
from rankscope.agent.probes.numerics import batch, finite
from rankscope.agent.tracing import recorded
from rankscope.protocol.messages import Stage

ORDINARY = frozenset({torch.float32, torch.float16, torch.bfloat16})

MAX_WAITING = 4096
"""With so many notes unread nobody is there to hash samples, and they would only take memory."""


class Inputs(Probe):
    """Looks at what the first model is called with, in training."""

    name: ClassVar[str] = "inputs"
    guarded: ClassVar[tuple[str, ...]] = ("on_begin",)
    numbers: ClassVar[bool] = True

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
        samples: list[batch.Sample] = []
        bad = unread = False
        found = batch.tensors(args, kwargs)
        for _, tensor in found:
            if not tensor.is_cpu:
                unread = True
                continue
            sample = batch.sample(tensor)
            if sample is not None:
                samples.append(sample)
            if tensor.dtype in ORDINARY and sample is not None:
                given = tensor.detach() if tensor.requires_grad else tensor
                total = given.sum(dtype=torch.float32).item()
                bad = bad or total - total != 0.0
            elif tensor.is_floating_point() or tensor.is_complex():
                bad = True  # not known yet
        if not unread:  # integers are finite
            observer.signs.looked(Stage.INPUT)
        if bad:
            self._look(found)
        if samples and len(observer.noted) < MAX_WAITING:
            more = observer.more
            if "fingerprint" in more:
                more["fingerprint"] += samples
            else:
                more["fingerprint"] = samples

    def _look(self, given: list[tuple[str, torch.Tensor]]) -> None:
        """A sum was not finite, be it by an element or by itself."""
        observer = self.observer
        found = finite.troubles([tensor for _, tensor in given])
        for index, (value, count) in found:
            observer.signs.add(
                Stage.INPUT,
                given[index][0],
                microbatch=observer.microbatch,
                value=value,
                count=count,
            )
        if found:
            observer.signs.publish()
