"""The optimizer's step, through torch's own hooks around it."""

import threading
import time
import weakref
from typing import Any, ClassVar

from rankscope.agent import events
from rankscope.agent.guards import entry
from rankscope.agent.probes.base import Probe


class Optimizer(Probe):
    name: ClassVar[str] = "optimizer"
    guarded: ClassVar[tuple[str, ...]] = ("on_begin", "on_end", "on_end_first")

    __slots__ = ("_begins", "_clock", "_ends", "_handles", "_ident", "_note", "_stepped")

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._handles: list[tuple[weakref.ref[Any], Any]] = []
        self._note = observer.noted.append
        self._clock = time.monotonic
        self._ident = threading.get_ident
        self._begins, self._ends = events.BEGIN_OPTIMIZER, events.END_OPTIMIZER
        self._stepped = events.STEPPED

    def watch_optimizer(self, optimizer: Any, *, first: bool) -> None:
        before = self.observer.update_begins if first else []
        on_end = self.on_end_first if first else self.on_end
        after = self.observer.update_ends if first else []
        begin = entry(self.observer, *before, (self, self.on_begin), anywhere=True)
        end = entry(self.observer, *after, (self, on_end), anywhere=True)
        reference = weakref.ref(optimizer)
        self._handles += [
            (reference, optimizer.register_step_pre_hook(begin)),
            (reference, optimizer.register_step_post_hook(end)),
        ]

    def tidy(self) -> None:
        self._handles = [one for one in self._handles if one[0]() is not None]

    def uninstall(self) -> None:
        for _, handle in self._handles:
            handle.remove()
        self._handles.clear()

    def on_begin(self, now: float, optimizer: Any, args: Any, kwargs: Any) -> None:
        # The thread that steps the optimizer is the one that trains, whoever attached.
        self.observer.thread = self._ident()
        # What other probes did just before, in the same entry, is no time of the optimizer's.
        self._note((self._begins, self._clock()))

    def on_end(self, now: float, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._note((self._ends, now))
        observer = self.observer
        if observer.backwards:
            observer.updates.others = True

    def on_end_first(self, now: float, optimizer: Any, args: Any, kwargs: Any) -> None:
        observer = self.observer
        if observer.step.called and observer.step.on:
            self._note((self._ends, now))
        else:
            observer.note_step(self._stepped, now)
