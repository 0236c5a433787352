"""The process that writes, as its rank has it: started once, it waits from save to save."""

import contextlib
import errno
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from rankscope.agent.checkpoint import scribe
from rankscope.agent.checkpoint.meeting import Failed
from rankscope.agent.checkpoint.notfinite import NOT_LOOKED
from rankscope.protocol import crc

CHUNK_BYTES = 4096
LOOK_EVERY_S = 0.25
END_S = 5.0
EXITED = "exit code"


class NoProcess(Exception):
    """There is none to be had."""


class EndedUnheard(ChildProcessError):
    """It had begun before, and has ended without a word about what it was to write now: it was
    killed while it waited, say. Another one may do it."""


class Span(NamedTuple):
    """``size_bytes`` of the copied state, from ``begin``, go to ``at`` in the file."""

    begin: int
    size_bytes: int
    at: int
    dtype: str = NOT_LOOKED
    """Of the numbers that it is asked of whether they are finite."""


class Done(NamedTuple):
    """A span that was written."""

    crc32: int
    found: str
    """What its numbers are, see ``notfinite``."""


class Scribe:
    """Writes from the memory with the descriptor ``memory``; ``idly`` starts it, see :func:`idly`.

    ``politely`` is its argument. Not for two threads at once. Raises :class:`NoProcess`.
    """

    def __init__(self, memory: int, politely: int, idly: Sequence[str] = ()) -> None:
        self.politely = politely
        self._heard = b""
        self._spoke = self._answered = False  # at all, and to the last order
        self._orders, theirs = socket.socketpair()
        try:
            self.process = subprocess.Popen(
                [
                    *idly,
                    *(sys.executable or "python", "-I", "-S", scribe.__file__),
                    *(str(memory), str(politely), crc.LIBRARY.found_in),
                ],
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=(memory,),
                bufsize=0,
                # What a terminal sends to the run is not for it. In the session of the run, though:
                # where each session has its own share of the cores, one of its own would take that
                # of training, however polite it is.
                process_group=0,
            )
        except OSError as error:
            self._orders.close()
            raise NoProcess(str(error)) from None
        finally:
            theirs.close()
        _of_this_process.add(self)
        self._end = weakref.finalize(self, end, self.process, self._orders, os.getpid())

    def order(self, descriptor: int, spans: Sequence[Span], cancelled: threading.Event) -> None:
        """Have ``spans`` written to ``descriptor``; see :meth:`tell`."""
        self._answered = False
        lines = "".join(f"{' '.join(map(str, span))}\n" for span in spans).encode()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            size = len(lines).to_bytes(scribe.SIZE_BYTES)
            socket.send_fds(self._orders, [size], [descriptor], socket.MSG_DONTWAIT)
        self.tell(lines, cancelled)

    def tell(self, content: bytes, cancelled: threading.Event) -> None:
        """Raises :class:`Failed` when the save is given up; of an end of the process nothing yet:
        it is heard later."""
        poll = select.poll()
        poll.register(self._orders, select.POLLOUT)
        left = memoryview(content)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while left:
                if cancelled.is_set():
                    raise Failed("cancelled")
                if poll.poll(LOOK_EVERY_S * 1000):
                    with contextlib.suppress(BlockingIOError):
                        count = self._orders.send(left[:CHUNK_BYTES], socket.MSG_DONTWAIT)
                        left = left[count:]

    def line(self, until_s: float, cancelled: threading.Event, hurry: threading.Event) -> list[str]:
        """The next line, in words; none when there is none at ``until_s``, which is monotonic.

        Raises OSError for what the disk refused and when the process has ended
        (:class:`EndedUnheard` without a word to the last order), :class:`NoProcess` when it exited
        without a word at all, :class:`Failed` when the save is given up.
        """
        assert self.process.stdout is not None
        poll = select.poll()
        poll.register(self.process.stdout, select.POLLIN)
        while b"\n" not in self._heard:
            if cancelled.is_set():
                raise Failed("cancelled")
            if time.monotonic() > until_s or (self.politely and hurry.is_set()):
                return []
            if not poll.poll(LOOK_EVERY_S * 1000):
                continue
            heard = os.read(self.process.stdout.fileno(), 1 << 16)
            if not heard:
                how = self._how()
                if not self._spoke and how.startswith(EXITED):  # it is no Python of ours
                    raise NoProcess(how)
                text = f"the process that writes ended ({how})"
                kind = ChildProcessError if self._answered else EndedUnheard
                raise kind(errno.ECHILD, text)
            self._heard += heard
            self._spoke = self._answered = True
        line, _, self._heard = self._heard.partition(b"\n")
        words = line.decode("ascii").split()
        if words[0] == "e":
            raise OSError(int(words[1]), os.strerror(int(words[1])))
        return words

    @property
    def waits(self) -> bool:
        """Whether it is there for another file, as far as one can see."""
        return self.process.poll() is None and self._heard == b""

    def close(self) -> None:
        self._end()

    def leave(self) -> None:
        """In a forked child, which must not keep it alive when the rank has ended."""
        self._end.detach()
        self._orders.close()

    def _how(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.process.wait(END_S)
            return f"signal {-code}" if code < 0 else f"{EXITED} {code}"
        return "it is not known how"


def end(process: "subprocess.Popen[bytes]", orders: socket.socket, owner: int) -> None:
    """End ``process``, which process ``owner`` has started."""
    if os.getpid() != owner:
        return
    orders.close()
    if process.stdout is not None:
        process.stdout.close()
    process.kill()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:  # it waits for a disk that does not answer
        process.returncode = -9  # no warning; init has it when this process ends


_of_this_process: "weakref.WeakSet[Scribe]" = weakref.WeakSet()


def _forked() -> None:
    for one in tuple(_of_this_process):
        one.leave()


os.register_at_fork(after_in_child=_forked)


@lru_cache(maxsize=1)
def idly() -> tuple[str, ...]:
    """What starts a program so that it begins with the lowest priority already, if there is one."""
    found = shutil.which("chrt")
    return () if found is None or sys.platform != "linux" else (found, "--idle", "0")
