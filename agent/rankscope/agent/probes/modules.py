"""Forward: hooks on the root module, so that wrappers (DDP, FSDP2, compiled) cost one pair each."""

from typing import Any, ClassVar

import torch

from rankscope.agent import events
from rankscope.agent.probes.base import Probe


class Modules(Probe):
    name: ClassVar[str] = "modules"
    guarded: ClassVar[tuple[str, ...]] = ("on_begin", "on_begin_further", "on_end")

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._handles: list[Any] = []
        self._note = observer.noted.append
        self._trains = torch.is_grad_enabled

    def watch_model(self, model: Any, *, first: bool) -> None:
        begin = self.observer.guard(self, self.on_begin if first else self.on_begin_further)
        self._handles += [
            model.register_forward_pre_hook(begin, prepend=True),
            model.register_forward_hook(
                self.observer.guard(self, self.on_end),
                always_call=True,  # also when forward raises
            ),
        ]

    def uninstall(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def on_begin(self, now: float, module: Any, args: Any) -> None:
        # Under no_grad nothing is trained: an evaluation, whatever module.training says.
        self._note((events.BEGIN_FORWARD, now, self._trains()))

    def on_begin_further(self, now: float, module: Any, args: Any) -> None:
        self._note((events.BEGIN_FURTHER_FORWARD, now, self._trains()))

    def on_end(self, now: float, module: Any, args: Any, output: Any) -> None:
        self._note((events.END_FORWARD, now))
