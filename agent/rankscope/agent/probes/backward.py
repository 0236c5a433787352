"""Backward: ``torch.autograd.backward``, which ``Tensor.backward`` calls, wrapped once."""

import functools
from typing import Any, ClassVar

import torch

from rankscope.agent import events
from rankscope.agent.guards import entry
from rankscope.agent.probes.base import Probe


class Backward(Probe):
    name: ClassVar[str] = "backward"
    guarded: ClassVar[tuple[str, ...]] = ("on_begin", "on_end")

    __slots__ = ("_begins", "_ends", "_note", "_original", "_wrapper", "depth", "nested")

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._wrapper: Any = None
        self._original: Any = None
        self.depth = 0
        """Backwards in work: more than one where reentrant checkpointing recomputes."""
        self.nested = 0
        """Backwards that began within another, since the beginning."""
        self._note = observer.noted.append
        self._begins, self._ends = events.BEGIN_BACKWARD, events.END_BACKWARD

    def install(self) -> None:
        original = torch.autograd.backward
        begins = (self, self.on_begin)
        inner = entry(self.observer, begins)
        outer = entry(self.observer, begins, *self.observer.backward_begins)
        # What began on the training thread ends there.
        inner_end = entry(self.observer, (self, self.on_end), anywhere=True, eager=True)
        outer_end = entry(
            self.observer,
            *self.observer.backward_ends,
            (self, self.on_end),
            anywhere=True,
            eager=True,
        )

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            # Inside the outermost one, reentrant checkpointing calls backward again.
            begin, end = (inner, inner_end) if self.depth else (outer, outer_end)
            tensors = args[0] if args else kwargs.get("tensors")
            if begin(tensors, args, kwargs):
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                end(tensors, args, kwargs)

        self._original, self._wrapper = original, backward
        torch.autograd.backward = backward

    def uninstall(self) -> None:
        if self._wrapper is not None and torch.autograd.backward is self._wrapper:
            torch.autograd.backward = self._original
        self._wrapper = self._original = None

    def on_begin(self, now: float, tensors: Any, args: Any, kwargs: Any) -> None:
        depth, self.depth = self.depth, self.depth + 1
        if depth:
            self.nested += 1
        self._note((self._begins, now))
        observer = self.observer
        if not depth and not observer.backwards:
            if observer.going_on is not None:
                try:
                    observer.going_on()
                except Exception as error:  # noqa: BLE001 - sorted out there
                    observer.cannot_go_on(error)
            if observer.looks:
                observer.ask(observer.updates, observer.updates.on_first_backward)

    def on_end(self, now: float, tensors: Any, args: Any, kwargs: Any) -> None:
        if self.depth > 1:
            self.depth -= 1
        else:
            self.depth = 0
            observer = self.observer
            observer.backwards += 1
            if observer.looks:
                observer.ask(observer.updates, observer.updates.on_backward_end)
        self._note((self._ends, now))
