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

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._wrapper: Any = None
        self._original: Any = None
        self._depth = 0
        self.count = 0
        """Backwards that have ended."""
        self._note = observer.noted.append

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
            begin, end = (inner, inner_end) if self._depth else (outer, outer_end)
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
        self._depth += 1
        self._note((events.BEGIN_BACKWARD, now))
        if self._depth == 1 and self.observer.going_on is not None:
            self.observer.going_on(self.observer.number, 1)

    def on_end(self, now: float, tensors: Any, args: Any, kwargs: Any) -> None:
        self._depth = max(0, self._depth - 1)
        self.count += 1
        self._note((events.END_BACKWARD, now))
