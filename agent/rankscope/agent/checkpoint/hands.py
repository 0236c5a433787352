"""Who writes a rank's tensors to its file: a process beside the rank, or a thread in it."""

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, Self

import numpy

from rankscope.agent.checkpoint.notfinite import Look
from rankscope.agent.checkpoint.process import Done, EndedUnheard, NoProcess, Scribe, Span, idly
from rankscope.agent.checkpoint.scribe import SYNC
from rankscope.agent.checkpoint.staging import Buffer, Staged
from rankscope.protocol import crc

log = logging.getLogger("rankscope")

LEAST_BYTES = 32 << 20
"""Less is written before another process has begun."""

PATIENCE_S = (10.0, 20.0, float("inf"))
"""So long what is left over of the cores must do, and so long then a small share of them: a save
that somebody waits for comes to its end also where training leaves nothing."""

Advance = Callable[[int], None]


class Hand(Protocol):
    """Writes one file."""

    def write(self, descriptor: int, spans: Sequence[Span], advance: Advance) -> list[Done]:
        """Write ``spans``; returns what there is to say of each. ``advance`` is told of what was
        written, and may raise to end it. Raises OSError when the disk does not take it."""

    def sync(self, path: Path) -> None:
        """Wait until all of the file is on the disk."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


def hand(staged: Staged, cancelled: threading.Event, hurry: threading.Event) -> Hand:
    """Who writes ``staged``; once ``hurry`` is set, with all that it can get of the cores."""
    data = staged.bytes()
    if staged.buffer.descriptor < 0 or staged.size_bytes < LEAST_BYTES:
        return Inside(data)
    return Outside(staged.buffer, data, cancelled, hurry)


class Inside:
    """The calling thread. It gives way to training only so far: it holds the GIL now and then, for
    which training may have to wait."""

    NICENESS = 10
    BLOCK_BYTES = 1 << 20
    """Written and checksummed at one go, both without the GIL."""

    def __init__(self, data: memoryview) -> None:
        self._data = data

    def write(self, descriptor: int, spans: Sequence[Span], advance: Advance) -> list[Done]:
        self._give_way()
        found = []
        for span in spans:
            crc32, at, look = 0, span.at, Look(self._strided, span.dtype)
            for start in range(0, span.size_bytes, self.BLOCK_BYTES):
                end = min(start + self.BLOCK_BYTES, span.size_bytes)
                block = self._data[span.begin + start : span.begin + end]
                crc32 = crc.crc32(block, crc32)
                look.at(span.begin + start, span.begin + end)
                while block:
                    count = os.pwrite(descriptor, block, at)
                    block, at = block[count:], at + count
                    advance(count)
            found.append(Done(crc32, look.found))
        return found

    def _strided(self, begin: int, end: int, step: int) -> bytes:
        """Copied by numpy, which lets go of the GIL meanwhile."""
        return numpy.ascontiguousarray(numpy.asarray(self._data)[begin:end:step]).tobytes()

    def sync(self, path: Path) -> None:
        sync(path)

    def _give_way(self) -> None:
        """On Linux this is of the calling thread alone."""
        if sys.platform == "linux" and threading.current_thread() is not threading.main_thread():
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self.NICENESS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


class Outside:
    """A process that takes what training leaves of the cores; see ``scribe``.

    Training may leave nothing, or wait for the save: then another one goes on, less politely. Where
    no process can be started the calling thread does it, and another process, once, where one is
    killed before its first word. One that has done all of it waits for the next save, with
    ``buffer``, which the bytes are in.
    """

    def __init__(
        self,
        buffer: Buffer,
        data: memoryview,
        cancelled: threading.Event,
        hurry: threading.Event,
        patience_s: Sequence[float] = PATIENCE_S,
    ) -> None:
        self._buffer, self._data = buffer, data
        self._cancelled, self._hurry = cancelled, hurry
        self._patience_s = patience_s
        self._scribe: Scribe | None = None
        self._idly = idly()
        self._replaced = False
        self._reached = 0  # bytes that were told of

    def write(self, descriptor: int, spans: Sequence[Span], advance: Advance) -> list[Done]:
        found: dict[int, Done] = {}
        for politely, patience_s in zip((2, 1, 0), self._patience_s, strict=True):
            if politely and self._hurry.is_set():
                continue
            left = [index for index in range(len(spans)) if index not in found]
            try:
                self._by_process(descriptor, politely, patience_s, spans, left, found, advance)
            except NoProcess as error:
                log.debug("rankscope: no process that writes: %s", error)
                self._end()
                inside = Inside(self._data)
                for index in left:
                    found[index] = inside.write(descriptor, [spans[index]], advance)[0]
            if len(found) == len(spans):
                break
            self._end()
        return [found[index] for index in range(len(spans))]

    def _by_process(
        self,
        descriptor: int,
        politely: int,
        patience_s: float,
        spans: Sequence[Span],
        left: Sequence[int],
        found: dict[int, Done],
        advance: Advance,
    ) -> None:
        """Have those of ``spans`` that are ``left`` written, as far as ``patience_s`` goes."""
        try:
            self._start(descriptor, politely, [spans[index] for index in left])
            self._listen(spans, left, found, time.monotonic() + patience_s, advance)
        except NoProcess:
            if not self._idly:
                raise
            self._end()
            self._idly = ()  # it may have been for what starts it
            self._by_process(descriptor, politely, patience_s, spans, left, found, advance)
        except EndedUnheard as error:
            if self._replaced:
                raise
            log.debug("rankscope: %s; another one is started", error)
            self._end()
            self._replaced = True
            self._by_process(descriptor, politely, patience_s, spans, left, found, advance)

    def _listen(
        self,
        spans: Sequence[Span],
        left: Sequence[int],
        found: dict[int, Done],
        until_s: float,
        advance: Advance,
    ) -> None:
        """Add to ``found`` what the process has written of those that are ``left``."""
        assert self._scribe is not None
        before = sum(spans[index].size_bytes for index in found)
        while len(found) < len(spans):
            words = self._scribe.line(until_s, self._cancelled, self._hurry)
            if not words:
                return
            if words[0] == "d":
                found[left[int(words[1])]] = Done(int(words[2]), words[3])
                reached = sum(spans[index].size_bytes for index in found)
            else:
                reached = before + int(words[1])
            if reached > self._reached:
                advance(reached - self._reached)
                self._reached = reached

    def sync(self, path: Path) -> None:
        if self._scribe is None:
            sync(path)
            return
        self._scribe.tell(SYNC, self._cancelled)
        until_s = time.monotonic() + self._patience_s[0]
        if self._scribe.line(until_s, self._cancelled, self._hurry):
            self._buffer.scribe, self._scribe = self._scribe, None
        else:
            sync(path)

    def _start(self, descriptor: int, politely: int, spans: Sequence[Span]) -> None:
        """Have ``spans`` written by the process that waits, or by a new one."""
        kept, self._buffer.scribe = self._buffer.scribe, None
        if kept is not None and kept.politely == politely and kept.waits:
            self._scribe = kept
        else:
            if kept is not None:
                kept.close()
            start = self._idly if politely == 2 else ()
            self._scribe = Scribe(self._buffer.descriptor, politely, start)
        self._scribe.order(descriptor, spans, self._cancelled)

    def _end(self) -> None:
        ended, self._scribe = self._scribe, None
        if ended is not None:
            ended.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()


def sync(path: Path) -> None:
    """Wait until the file or directory ``path`` is on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
