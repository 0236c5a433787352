"""Forward: hooks on the root module, so that wrappers (DDP, FSDP2, compiled) cost one pair each."""

from typing import Any, ClassVar

import torch

from rankscope.agent.probes.base import Probe
from rankscope.protocol.messages import Phase


class Modules(Probe):
    name: ClassVar[str] = "modules"
    guarded: ClassVar[tuple[str, ...]] = ("on_begin", "on_begin_further", "on_end")

    def install(self) -> None:
        self._handles: list[Any] = []

    def watch_model(self, model: Any, *, first: bool) -> None:
        begin = self.observer.guard(self, self.on_begin if first else self.on_begin_further)
        end = self.observer.guard(self, self.on_end)
        self._handles += [
            model.register_forward_pre_hook(begin, prepend=True),
            model.register_forward_hook(end, always_call=True),  # also when forward raises
        ]

    def uninstall(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def on_begin(self, module: Any, *args: Any) -> None:
        observer = self.observer
        observer.seen_forward(module)
        # Under no_grad nothing is trained: an evaluation, whatever module.training says.
        observer.phases.begin(
            Phase.FORWARD, observer.clock(), evaluates=not torch.is_grad_enabled()
        )

    def on_begin_further(self, module: Any, *args: Any) -> None:
        self.observer.phases.begin(
            Phase.FORWARD,
            self.observer.clock(),
            evaluates=not torch.is_grad_enabled(),
            counts=False,
        )

    def on_end(self, module: Any, args: Any, output: Any) -> None:
        observer = self.observer
        observer.phases.end(Phase.FORWARD, observer.clock())
        if torch.is_grad_enabled():
            observer.saw_output(output)
