"""Norms of gradients on their way from a GPU: copied without waiting, read when they are there.

As for single numbers (``probes.late``): a copy into pinned memory on the current stream with an
event behind it, which is asked, never waited for. All on threads that train.
"""

from collections import deque
from typing import Any, Final, NamedTuple

import torch

SLOTS: Final = 16
"""Backwards on their way at once; beyond that the newest is not read."""


Parts = list[tuple[list[int], torch.Tensor]]
"""(indices of parameters, their norms on one device)"""


class Arrived(NamedTuple):
    number: int
    """Of the note of the step."""
    microbatch: int
    norms: list[tuple[int, float]]
    """(index of the parameter, norm)."""


class LateNorms:
    """A ring of pinned rows, one a backward."""

    def __init__(self) -> None:
        self._rows: Any = None
        self._pending: deque[tuple[int, int, list[int], int, Any]] = deque()
        self._next = 0

    def submit(self, number: int, microbatch: int, parts: Parts) -> None:
        """Start the copy of ``parts`` of one backward."""
        indices = [index for some, _ in parts for index in some]
        if len(self._pending) >= SLOTS or torch.cuda.is_current_stream_capturing():
            return
        if self._rows is None or self._rows.shape[1] < len(indices):
            if self._pending:  # rows in use stay where they are
                return
            self._rows = torch.empty(
                (SLOTS, len(indices)), dtype=torch.float64, pin_memory=True, device="cpu"
            )
        slot, self._next = self._next, (self._next + 1) % SLOTS
        stream: Any = torch.cuda.current_stream
        with torch.no_grad(), torch.cuda.device(parts[0][1].device):
            for _, norms in parts:
                norms.record_stream(stream())  # computed on backward's stream, perhaps another
            together = torch.cat([norms.to(torch.float64) for _, norms in parts])
            self._rows[slot, : len(indices)].copy_(together, non_blocking=True)
            event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        self._pending.append((number, microbatch, indices, slot, event))

    def poll(self) -> list[Arrived]:
        """What has arrived since, in order."""
        arrived: list[Arrived] = []
        if not self._pending or torch.cuda.is_current_stream_capturing():
            return arrived
        while self._pending and self._pending[0][4].query():
            number, microbatch, indices, slot, _ = self._pending.popleft()
            row = self._rows[slot, : len(indices)].tolist()
            arrived.append(Arrived(number, microbatch, list(zip(indices, row, strict=True))))
        return arrived

    def awaits(self, number: int) -> bool:
        """Whether more of that step is on its way."""
        return any(one[0] == number for one in self._pending)
