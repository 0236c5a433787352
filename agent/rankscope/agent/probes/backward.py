"""Backward: ``torch.autograd.backward``, which ``Tensor.backward`` calls, wrapped once."""

import functools
from typing import Any, ClassVar

import torch

from rankscope.agent import events
from rankscope.agent.probes.base import Probe


class Backward(Probe):
    name: ClassVar[str] = "backward"
    guarded: ClassVar[tuple[str, ...]] = ("on_begin", "on_end")

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._wrapper: Any = None
        self._original: Any = None
        self._depth = 0
        self._note = observer.noted.append

    def install(self) -> None:
        original = torch.autograd.backward
        begin = self.observer.guard(self, self.on_begin)
        end = self.observer.guard(self, self.on_end)
        saw = self.observer.guard(self.observer.loss, self.observer.loss.on_backward)

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            begin()
            if self._depth == 1:  # inside it, reentrant checkpointing calls backward again
                saw(args[0] if args else kwargs.get("tensors"))
            try:
                return original(*args, **kwargs)
            finally:
                end()

        self._original, self._wrapper = original, backward
        torch.autograd.backward = backward

    def uninstall(self) -> None:
        if self._wrapper is not None and torch.autograd.backward is self._wrapper:
            torch.autograd.backward = self._original
        self._wrapper = self._original = None

    def on_begin(self, now: float) -> None:
        self._depth += 1
        self._note((events.BEGIN_BACKWARD, now))

    def on_end(self, now: float) -> None:
        self._depth = max(0, self._depth - 1)
        self._note((events.END_BACKWARD, now))
