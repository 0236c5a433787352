"""The fingerprint of a step's input batches."""

from typing import Any, ClassVar

import torch

from rankscope.agent.calls import Removal, of_the_living
from rankscope.agent.probes.base import Probe
from rankscope.agent.probes.numerics import batch
from rankscope.agent.tracing import recorded

IN_A_ROW = 4
EVERY = 16
"""Of every so many steps so many, in a row, are fingerprinted: all ranks the same ones, and those
that were before when a run goes on."""

MAX_WAITING = 4096
"""With so many notes unread nobody is there to hash samples, and they would only take memory."""


class Inputs(Probe):
    """Looks at what the first model is called with, in training."""

    name: ClassVar[str] = "inputs"
    guarded: ClassVar[tuple[str, ...]] = ("on_begin",)
    numbers: ClassVar[bool] = True

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._removals: list[Removal] = []

    def watch_model(self, model: Any, *, first: bool) -> None:
        if first:
            self._removals.append(self.observer.calls.add(model, begins=(self, self.on_begin)))

    def tidy(self) -> None:
        self._removals = of_the_living(self._removals)

    def uninstall(self) -> None:
        for remove in self._removals:
            remove()
        self._removals.clear()

    def on_begin(self, now: float, model: Any, args: Any, kwargs: Any) -> None:
        observer = self.observer
        step = observer.start_step + observer.number
        if step % EVERY > IN_A_ROW or not torch.is_grad_enabled() or recorded():
            return
        found = (batch.sample(tensor) for _, tensor in batch.tensors(args, kwargs))
        samples = [sample for sample in found if sample is not None]
        if samples and len(observer.noted) < MAX_WAITING:
            more = observer.more
            if "fingerprint" in more:
                more["fingerprint"] += samples
            else:
                more["fingerprint"] = samples
