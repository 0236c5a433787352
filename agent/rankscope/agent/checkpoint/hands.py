"""Who writes a rank's tensors to its file: a process beside the rank, or a thread in it."""

import contextlib
import errno
import logging
import os
import select
import shutil
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from rankscope.agent.checkpoint import scribe
from rankscope.agent.checkpoint.meeting import Failed
from rankscope.agent.checkpoint.staging import Staged

log = logging.getLogger("rankscope")

LEAST_BYTES = 32 << 20
"""Less is written before another process has begun."""

PATIENCE_S = (10.0, 20.0, float("inf"))
"""So long what is left over of the cores must do, and so long then a small share of them: a save
that somebody waits for comes to its end also where training leaves nothing."""

PIPE_BYTES = select.PIPE_BUF
LOOK_EVERY_S = 0.25
END_S = 5.0

EXITED = "exit code"

Advance = Callable[[int], None]


class NoProcess(Exception):
    """There is none to be had."""


class Span(NamedTuple):
    """``size_bytes`` of the copied state, from ``begin``, go to ``at`` in the file."""

    begin: int
    size_bytes: int
    at: int


class Hand(Protocol):
    """Writes one file."""

    def write(self, descriptor: int, spans: Sequence[Span], advance: Advance) -> list[int]:
        """Write ``spans``; returns the CRC-32 of each. ``advance`` is told of what was written,
        and may raise to end it. Raises OSError when the disk does not take it."""

    def sync(self, path: Path) -> None:
        """Wait until all of the file is on the disk."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


def hand(staged: Staged, cancelled: threading.Event, hurry: threading.Event) -> Hand:
    """Who writes ``staged``; once ``hurry`` is set, with all that it can get of the cores."""
    data = staged.bytes()
    if staged.buffer.descriptor < 0 or staged.size_bytes < LEAST_BYTES:
        return Inside(data)
    return Outside(data, staged.buffer.descriptor, cancelled, hurry)


class Inside:
    """The calling thread. It gives way to training only so far: it holds the GIL now and then, for
    which training may have to wait."""

    NICENESS = 10
    BLOCK_BYTES = 1 << 20
    """Written and checksummed at one go, both without the GIL."""

    def __init__(self, data: memoryview) -> None:
        self._data = data

    def write(self, descriptor: int, spans: Sequence[Span], advance: Advance) -> list[int]:
        self._give_way()
        found = []
        for span in spans:
            crc32, at = 0, span.at
            for start in range(0, span.size_bytes, self.BLOCK_BYTES):
                end = min(start + self.BLOCK_BYTES, span.size_bytes)
                block = self._data[span.begin + start : span.begin + end]
                crc32 = zlib.crc32(block, crc32)
                while block:
                    count = os.pwrite(descriptor, block, at)
                    block, at = block[count:], at + count
                    advance(count)
            found.append(crc32)
        return found

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
    no process can be started the calling thread does it.
    """

    def __init__(
        self,
        data: memoryview,
        memory: int,
        cancelled: threading.Event,
        hurry: threading.Event,
        patience_s: Sequence[float] = PATIENCE_S,
    ) -> None:
        self._data = data
        self._memory = memory
        self._cancelled, self._hurry = cancelled, hurry
        self._patience_s = patience_s
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = b""
        self._spoke = False
        self._politely = 0
        self._idly = idly()
        self._reached = 0  # bytes that were told of

    def write(self, descriptor: int, spans: Sequence[Span], advance: Advance) -> list[int]:
        found: dict[int, int] = {}
        for politely, patience_s in zip((2, 1, 0), self._patience_s, strict=True):
            if politely and self._hurry.is_set():
                continue
            self._politely = politely
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
        found: dict[int, int],
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

    def _listen(
        self,
        spans: Sequence[Span],
        left: Sequence[int],
        found: dict[int, int],
        until_s: float,
        advance: Advance,
    ) -> None:
        """Add to ``found`` what the process has written of those that are ``left``."""
        before = sum(spans[index].size_bytes for index in found)
        while len(found) < len(spans):
            words = self._line(until_s)
            if not words:
                return
            if words[0] == "d":
                found[left[int(words[1])]] = int(words[2])
                reached = sum(spans[index].size_bytes for index in found)
            else:
                reached = before + int(words[1])
            if reached > self._reached:
                advance(reached - self._reached)
                self._reached = reached

    def sync(self, path: Path) -> None:
        if self._process is None:
            sync(path)
            return
        self._tell(b"s\n")
        if not self._line(time.monotonic() + self._patience_s[0]):
            sync(path)

    def _start(self, descriptor: int, politely: int, spans: Sequence[Span]) -> None:
        self._heard, self._spoke = b"", False
        try:
            self._process = subprocess.Popen(
                [
                    *(self._idly if politely == 2 else ()),
                    *(sys.executable or "python", "-I", "-S", scribe.__file__),
                    *map(str, (self._memory, descriptor, politely)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=(self._memory, descriptor),
                bufsize=0,
                # What a terminal sends to the run is not for it. In the session of the run, though:
                # where each session has its own share of the cores, one of its own would take that
                # of training, however polite it is.
                process_group=0,
            )
        except OSError as error:
            raise NoProcess(str(error)) from None
        lines = "".join(f"{span.begin} {span.size_bytes} {span.at}\n" for span in spans)
        self._tell(f"{lines}\n".encode())

    def _tell(self, content: bytes) -> None:
        """Raises :class:`Failed` when the save is given up; of an end of the process nothing yet:
        it is heard later."""
        assert self._process is not None
        assert self._process.stdin is not None
        poll = select.poll()
        poll.register(self._process.stdin, select.POLLOUT)
        left = memoryview(content)
        with contextlib.suppress(BrokenPipeError):
            while left:
                if self._cancelled.is_set():
                    raise Failed("cancelled")
                if poll.poll(LOOK_EVERY_S * 1000):  # a page goes in without waiting
                    left = left[os.write(self._process.stdin.fileno(), left[:PIPE_BYTES]) :]

    def _line(self, until_s: float) -> list[str]:
        """The next line, in words; none when there is none at ``until_s``, which is monotonic.

        Raises OSError for what the disk refused and when the process has ended,
        :class:`NoProcess` when it ended without a word, :class:`Failed` when the save is given up.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        while b"\n" not in self._heard:
            if self._cancelled.is_set():
                raise Failed("cancelled")
            if time.monotonic() > until_s or (self._politely and self._hurry.is_set()):
                return []
            if not poll.poll(LOOK_EVERY_S * 1000):
                continue
            heard = os.read(self._process.stdout.fileno(), 1 << 16)
            if not heard:
                how = self._how()
                if not self._spoke and how.startswith(EXITED):  # it is no Python of ours
                    raise NoProcess(how)
                text = f"the process that writes ended ({how})"
                raise ChildProcessError(errno.ECHILD, text)
            self._heard += heard
            self._spoke = True
        line, _, self._heard = self._heard.partition(b"\n")
        words = line.decode("ascii").split()
        if words[0] == "e":
            raise OSError(int(words[1]), os.strerror(int(words[1])))
        return words

    def _how(self) -> str:
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(END_S)
            return f"signal {-code}" if code < 0 else f"{EXITED} {code}"
        return "it is not known how"

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        process.kill()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:  # it waits for a disk that does not answer
            process.returncode = -9  # no warning; init has it when this process ends

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()


@lru_cache(maxsize=1)
def idly() -> tuple[str, ...]:
    """What starts a program so that it begins with the lowest priority already, if there is one."""
    found = shutil.which("chrt")
    return () if found is None or sys.platform != "linux" else (found, "--idle", "0")


def sync(path: Path) -> None:
    """Wait until the file or directory ``path`` is on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
