"""Large gradients under DDP on a CPU are read together, before DDP waits for the other ranks.

Reading one between two kernels of the backward takes from them, and from the reducer's copy, what
they have in the caches; read together afterwards, and partly while the reducer sends, they cost
less. Nothing is kept alive for it: neither a parameter nor its gradient, should a backward raise.
"""

import weakref
from typing import Any

import torch


def can_wait(gradient: Any) -> bool:
    """Whether it is a tensor of its own on a CPU, which nobody reduces where it lies."""
    return gradient is not None and bool(
        gradient.is_cpu and not gradient.is_sparse and not gradient._is_view()
    )


class Deferred:
    """Of the backward in work."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, weakref.ref[Any]]] = []

    def add(self, index: int, parameter: Any) -> None:
        self._waiting.append((index, weakref.ref(parameter)))

    def forget(self) -> None:
        """The backward is over. One that raised has left what waited, and a weak reference to a
        parameter forbids the user's ``Module.to`` where it swaps tensors."""
        if self._waiting:
            self._waiting = []

    def take(self) -> tuple[list[tuple[int, torch.Tensor]], bool]:
        """The gradients by parameter's index, and whether they are all still there."""
        waiting, self._waiting = self._waiting, []
        found: list[tuple[int, torch.Tensor]] = []
        for index, reference in waiting:
            gradient: Any = getattr(reference(), "grad", None)
            if can_wait(gradient):
                found.append((index, gradient))
        return found, len(found) == len(waiting)
