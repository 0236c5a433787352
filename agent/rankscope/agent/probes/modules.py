"""Forward: calls of the root module, so that wrappers (DDP, FSDP2, compiled) cost one pair each."""

from typing import Any, ClassVar

import torch

from rankscope.agent import events
from rankscope.agent.calls import Removal, of_the_living
from rankscope.agent.probes.base import Probe


class Modules(Probe):
    name: ClassVar[str] = "modules"
    guarded: ClassVar[tuple[str, ...]] = ("on_begin", "on_begin_further", "on_end")

    __slots__ = ("_begins", "_ends", "_note", "_removals", "_trains")

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._removals: list[Removal] = []
        self._note = observer.noted.append
        self._begins, self._ends = events.BEGIN_FORWARD, events.END_FORWARD
        self._trains = torch.is_grad_enabled

    def watch_model(self, model: Any, *, first: bool) -> None:
        begin = self.on_begin if first else self.on_begin_further
        add = self.observer.calls.add
        self._removals.append(add(model, begins=(self, begin), ends=(self, self.on_end)))

    def tidy(self) -> None:
        self._removals = of_the_living(self._removals)

    def uninstall(self) -> None:
        for remove in self._removals:
            remove()
        self._removals.clear()

    def on_begin(self, now: float, module: Any, args: Any, kwargs: Any) -> None:
        # Under no_grad nothing is trained: an evaluation, whatever module.training says.
        trains = self._trains()
        observer = self.observer
        if trains and observer.microbatch:  # may end a step before this forward begins
            observer.ask(observer.updates, lambda: observer.updates.on_further_forward(now))
        self._note((self._begins, now, trains))
        if trains:
            if not observer.microbatch and observer.going_on is not None:
                try:
                    observer.going_on()
                except Exception as error:  # noqa: BLE001 - sorted out there
                    observer.cannot_go_on(error)
            observer.microbatch += 1

    def on_begin_further(self, now: float, module: Any, args: Any, kwargs: Any) -> None:
        self._note((events.BEGIN_FURTHER_FORWARD, now, self._trains()))

    def on_end(self, now: float, module: Any, args: Any, output: Any) -> None:
        self._note((self._ends, now))
