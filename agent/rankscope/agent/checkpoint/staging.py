"""The copy of this rank's pieces that is written while training goes on."""

import contextlib
import mmap
import os
import sys
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankscope.agent.checkpoint.plan import Piece
from rankscope.agent.checkpoint.process import Scribe

ALIGNMENT = 64
PAGE_BYTES = 4096
"""What a disk can read from memory by itself begins at a multiple of it, there and in the file."""

POPULATE_WRITE = 23
"""Linux's MADV_POPULATE_WRITE, which Python has no name for: many pages are mapped at one go, and
not each with a fault of its own in the first copy, for which training waits."""

POPULATED_BYTES = 16 << 20
"""At one go: Python holds its GIL meanwhile, some milliseconds."""

PAGED_BYTES = 1 << 20
"""From this size on a piece begins at a page."""


class Copied(NamedTuple):
    """A piece whose bytes are ``buffer[begin:end]``."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    lengths: tuple[int, ...]
    begin: int
    end: int


class Buffer:
    """Memory that copies are made into; ``descriptor`` is that of it for another process, or -1."""

    def __init__(self, size_bytes: int, pinned: bool = False) -> None:
        self.descriptor = -1
        self.scribe: Scribe | None = None
        """The process that has written from it, and waits for the next time."""
        self.tensor: Tensor
        if size_bytes and not pinned and sys.platform == "linux":
            with contextlib.suppress(OSError, ValueError):
                self.tensor = self._shared(size_bytes)
                return
        self.tensor = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=pinned, device="cpu")

    def _shared(self, size_bytes: int) -> Tensor:
        descriptor = os.memfd_create("rankscope-save")
        try:
            # All of it at once: memory that is not to be had is an error here, and a signal later.
            os.posix_fallocate(descriptor, 0, size_bytes)
            memory = mmap.mmap(descriptor, size_bytes)
            with contextlib.suppress(OSError, ValueError):  # where the system knows of it
                for begin in range(0, size_bytes, POPULATED_BYTES):
                    memory.madvise(POPULATE_WRITE, begin, POPULATED_BYTES)
        except BaseException:
            os.close(descriptor)
            raise
        weakref.finalize(self, os.close, descriptor)
        self.descriptor = descriptor
        return torch.frombuffer(memory, dtype=torch.uint8)


class Staged:
    """A consistent copy of the pieces, as of the boundary at which it was made."""

    def __init__(self, copies: list[Copied], buffer: Buffer, event: "torch.cuda.Event | None"):
        self.copies = copies
        self.buffer = buffer
        self._event = event

    @property
    def size_bytes(self) -> int:
        return sum(copy.end - copy.begin for copy in self.copies)

    def bytes(self) -> memoryview:
        """The buffer, once all copies have arrived in it. Waits for the device; not for training's
        thread."""
        if self._event is not None:
            self._event.synchronize()
        array: Any = self.buffer.tensor.numpy()
        return memoryview(array)


class Stager:
    """Makes copies into one buffer that is kept from save to save: pages are only touched once.

    From CUDA tensors the copies are put into the stream that training uses, between the update
    that was made and the next one, and the host does not wait for them: so nothing can tear.
    """

    def __init__(self) -> None:
        self._buffer = Buffer(0)

    def stage(self, pieces: Sequence[Piece]) -> Staged:
        copies, end = [], 0
        on_device = any(piece.source.is_cuda for piece in pieces)
        for piece in pieces:
            alignment = PAGE_BYTES if piece.data_bytes >= PAGED_BYTES else ALIGNMENT
            begin = -(-end // alignment) * alignment
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
                space = self._buffer.tensor[copy.begin : copy.end]
                target = space.view(copy.dtype).view(copy.lengths)
                target.copy_(piece.source, non_blocking=True)
        event = None
        if on_device:
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        return Staged(copies, self._buffer, event)

    def _reserve(self, size_bytes: int, pinned: bool) -> None:
        known = self._buffer.tensor
        if known.numel() < size_bytes or (pinned and not known.is_pinned()):
            del known
            self._buffer = Buffer(0)  # given back before more is taken
            self._buffer = Buffer(size_bytes, pinned)
