"""The copy of this rank's pieces that is written while training goes on."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankscope.agent.checkpoint.plan import Piece

ALIGNMENT = 64


class Copied(NamedTuple):
    """A piece whose bytes are ``buffer[begin:end]``."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    lengths: tuple[int, ...]
    begin: int
    end: int


class Staged:
    """A consistent copy of the pieces, as of the boundary at which it was made."""

    def __init__(self, copies: list[Copied], buffer: Tensor, event: "torch.cuda.Event | None"):
        self.copies = copies
        self._buffer = buffer
        self._event = event

    def bytes(self) -> memoryview:
        """The buffer, once all copies have arrived in it. Waits for the device; not for training's
        thread."""
        if self._event is not None:
            self._event.synchronize()
        array: Any = self._buffer.numpy()
        return memoryview(array)


class Stager:
    """Makes copies into one buffer that is kept from save to save: pages are only touched once.

    From CUDA tensors the copies are put into the stream that training uses, between the update
    that was made and the next one, and the host does not wait for them: so nothing can tear.
    """

    def __init__(self) -> None:
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def stage(self, pieces: Sequence[Piece]) -> Staged:
        copies, end = [], 0
        on_device = any(piece.source.is_cuda for piece in pieces)
        for piece in pieces:
            begin = -(-end // ALIGNMENT) * ALIGNMENT
            end = begin + piece.data_bytes
            copies.append(
                Copied(
                    piece.name,
                    piece.source.dtype,
                    piece.shape,
                    piece.offsets,
                    piece.lengths,
                    begin,
                    end,
                )
            )
        self._reserve(end, on_device)
        for piece, copy in zip(pieces, copies, strict=True):
            if copy.end > copy.begin:
                target = self._buffer[copy.begin : copy.end].view(copy.dtype).view(copy.lengths)
                target.copy_(piece.source, non_blocking=True)
        event = None
        if on_device:
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        return Staged(copies, self._buffer, event)

    def _reserve(self, size_bytes: int, pinned: bool) -> None:
        if self._buffer.numel() < size_bytes or (pinned and not self._buffer.is_pinned()):
            self._buffer = torch.empty(0, dtype=torch.uint8)  # given back before more is taken
            self._buffer = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=pinned)
