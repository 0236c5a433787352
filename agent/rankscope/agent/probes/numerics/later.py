"""Vectors that come off a device when it has got to them; from a CPU at once. Nobody waits.

On the training thread: an event that is asked from another would break a CUDA graph being captured.
"""

from collections import deque
from typing import Any, NamedTuple

import torch
from torch import Tensor

MAX_WAITING = 256


class _Waiting(NamedTuple):
    tag: Any
    copy: Tensor
    event: Any


class Later:
    """What does not arrive in time for its ``MAX_WAITING`` successors is not read at all."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()

    def submit(self, tag: Any, vector: Tensor) -> None:
        """Have ``vector`` read, to be handed out with ``tag``."""
        if not vector.is_cuda:
            self._waiting.append(_Waiting(tag, vector.detach(), None))
            return
        if len(self._waiting) >= MAX_WAITING or torch.cuda.is_current_stream_capturing():
            return
        with torch.no_grad(), torch.cuda.device(vector.device):
            copy = torch.empty_like(vector, device="cpu", pin_memory=True)
            copy.copy_(vector.detach(), non_blocking=True)
            event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        self._waiting.append(_Waiting(tag, copy, event))

    def poll(self) -> list[tuple[Any, list[Any]]]:
        """(tag, values) of what has arrived since, in order."""
        arrived: list[tuple[Any, list[Any]]] = []
        while self._waiting:
            tag, copy, event = self._waiting[0]
            if event is not None and (
                torch.cuda.is_current_stream_capturing() or not event.query()
            ):
                break
            self._waiting.popleft()
            arrived.append((tag, copy.tolist()))
        return arrived
