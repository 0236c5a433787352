"""Reading numbers off a device without waiting for it.

A scalar is copied into pinned memory on the current stream, with an event behind it; at a later
step the event is asked (never waited for) whether the copy is done. All of it on the training
thread: an event asked from another thread would break a CUDA graph capture in progress.
"""

from collections import deque
from typing import Any, NamedTuple

import torch

SLOTS = 64


class _Pending(NamedTuple):
    step: int
    names: tuple[str, ...]
    slot: int
    event: Any


class LateReader:
    """Up to ``SLOTS`` steps' values on their way; beyond that the newest is not read at all."""

    def __init__(self) -> None:
        self._pinned: torch.Tensor | None = None
        self._pending: deque[_Pending] = deque()
        self._next = 0

    def submit(self, step: int, values: dict[str, torch.Tensor]) -> None:
        """Start the copy of one-element CUDA tensors, all on one device."""
        if not values or len(self._pending) >= SLOTS or torch.cuda.is_current_stream_capturing():
            return
        if self._pinned is None:
            self._pinned = torch.empty(
                (SLOTS, 2), dtype=torch.float32, pin_memory=True, device="cpu"
            )
        slot, self._next = self._next, (self._next + 1) % SLOTS
        with torch.no_grad(), torch.cuda.device(next(iter(values.values())).device):
            for column, value in enumerate(values.values()):
                self._pinned[slot, column].copy_(value.detach().reshape(()), non_blocking=True)
            event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        self._pending.append(_Pending(step, tuple(values), slot, event))

    def poll(self) -> list[tuple[int, dict[str, float]]]:
        """(step, values by name) of what has arrived since."""
        arrived: list[tuple[int, dict[str, float]]] = []
        if not self._pending or torch.cuda.is_current_stream_capturing():
            return arrived
        assert self._pinned is not None
        while self._pending and self._pending[0].event.query():
            step, names, slot, _ = self._pending.popleft()
            row = self._pinned[slot].tolist()
            arrived.append((step, dict(zip(names, row, strict=False))))
        return arrived
