"""The optimizer's step, through torch's own hooks around it."""

from typing import Any, ClassVar

from rankscope.agent.probes.base import Probe
from rankscope.protocol.messages import Phase


class Optimizer(Probe):
    name: ClassVar[str] = "optimizer"
    guarded: ClassVar[tuple[str, ...]] = ("on_begin", "on_end", "on_end_first")

    def install(self) -> None:
        self._handles: list[Any] = []

    def watch_optimizer(self, optimizer: Any, *, first: bool) -> None:
        guard = self.observer.guard
        begin = guard(self, self.on_begin, adopts=first)
        end = guard(self, self.on_end_first if first else self.on_end)
        self._handles += [
            optimizer.register_step_pre_hook(begin),
            optimizer.register_step_post_hook(end),
        ]

    def uninstall(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def on_begin(self, *args: Any) -> None:
        self.observer.phases.begin(Phase.OPTIMIZER, self.observer.clock())

    def on_end(self, *args: Any) -> None:
        self.observer.phases.end(Phase.OPTIMIZER, self.observer.clock())

    def on_end_first(self, *args: Any) -> None:
        now = self.observer.clock()
        self.observer.phases.end(Phase.OPTIMIZER, now)
        self.observer.optimizer_stepped(now)
