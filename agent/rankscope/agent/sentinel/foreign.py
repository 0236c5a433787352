"""Reading ranks' stacks from outside: one at a time, in a thread of its own, for a bounded time.

The first reading does not stop the process. Only when a second one a moment later finds the main
thread in the very same place is it held for a third, with the frames of C and C++: a rank that
advances is never stopped.
"""

import contextlib
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rankscope.agent.nodedir import Registration
from rankscope.agent.sentinel import pyspy
from rankscope.agent.sentinel.pyspy import Reading
from rankscope.protocol import limits
from rankscope.protocol.messages import ForeignStacks, Operation

READ_S = 5.0
"""The longest that one reading takes; then py-spy is killed, and lets go of the process."""

EVERY_S = 1.0
NATIVE_EVERY_S = 10.0
APART_S = 0.3
TRIES = 5
TRY_AGAIN_S = 0.05
MAX_WAITING = 64


@dataclass(frozen=True)
class Found:
    """One reading of one rank, or why there is none."""

    registration: Registration
    reading: Reading | None
    native: bool
    error: str = ""

    def message(
        self, node: str, seq: int, now: float, operations: tuple[Operation, ...] = ()
    ) -> ForeignStacks:
        return ForeignStacks(
            node=node,
            seq=seq,
            t_s=now,
            attempt=self.registration.attempt,
            rank=self.registration.rank,
            pid=self.registration.pid,
            threads=self.reading.threads if self.reading is not None else (),
            native=self.native,
            source=self.reading.source if self.reading is not None else "",
            error=self.error[: limits.MAX_TEXT_CHARS],
            operations=operations,
        )


class Reader:
    """Asked for ranks; what it has found is taken away by :meth:`found`."""

    def __init__(self, spy: Callable[[], str | None] = pyspy.program) -> None:
        self._spy = spy
        self._waiting: dict[Registration, None] = {}
        self._found: deque[Found] = deque(maxlen=MAX_WAITING)
        self._read_s: dict[Registration, float] = {}
        self._native_s: dict[Registration, float] = {}
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def ask(self, registration: Registration, now: float) -> None:
        """Have the rank read, unless that was done less than a second ago."""
        if now - self._read_s.get(registration, -EVERY_S) < EVERY_S:
            return
        self._read_s[registration] = now
        with self._changed:
            if len(self._waiting) < MAX_WAITING:
                self._waiting[registration] = None
                self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stacks", daemon=True)
            self._thread.start()

    def forget(self, registration: Registration) -> None:
        """Its process has ended."""
        with self._changed:
            self._waiting.pop(registration, None)
        self._read_s.pop(registration, None)

    def found(self) -> list[Found]:
        """What was found since the last call."""
        taken = []
        while self._found:
            taken.append(self._found.popleft())
        return taken

    def close(self) -> None:
        """End the thread, and a reading that is under way."""
        self._closing.set()
        with self._changed:
            self._changed.notify()
        process = self._process
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()
        if self._thread is not None:
            self._thread.join(2.0)

    # the thread

    def _run(self) -> None:
        while not self._closing.is_set():
            with self._changed:
                while not self._waiting and not self._closing.is_set():
                    self._changed.wait()
                if self._closing.is_set():
                    return
                registration = next(iter(self._waiting))
                del self._waiting[registration]
            self._read(registration)

    def _read(self, registration: Registration) -> None:
        first, error = self._first(registration.pid)
        self._found.append(Found(registration, first, False, error))
        if first is None or self._closing.wait(APART_S):
            return
        if time.monotonic() - self._native_s.get(registration, -NATIVE_EVERY_S) < NATIVE_EVERY_S:
            return
        second, _ = self._dump(registration.pid, native=False)
        if second is None or not pyspy.same_main(first, second):
            return
        self._native_s[registration] = time.monotonic()
        native, _ = self._dump(registration.pid, native=True)
        if native is not None:
            self._found.append(Found(registration, native, True))

    def _first(self, pid: int) -> tuple[Reading | None, str]:
        """A reading with frames, if one can be had: of a thread that runs it may fail."""
        for _ in range(TRIES):
            reading, error = self._dump(pid, native=False)
            if error in pyspy.FINAL or (reading is not None and reading.threads[0].frames):
                break
            if self._closing.wait(TRY_AGAIN_S):
                break
        return reading, error

    def _dump(self, pid: int, *, native: bool) -> tuple[Reading | None, str]:
        """One reading, or why there is none."""
        spy = self._spy()
        if spy is None:
            return None, pyspy.MISSING
        try:
            with subprocess.Popen(
                pyspy.command(spy, pid, native=native),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ) as process:
                self._process = process
                try:
                    out, said = process.communicate(timeout=READ_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()
                    return None, f"py-spy did not answer within {READ_S:.0f} s"
                finally:
                    self._process = None
        except OSError as error:
            return None, f"cannot start {spy}: {error.strerror}"
        reading = pyspy.parse(out, pid) if process.returncode == 0 else None
        if reading is None:
            return None, pyspy.error_in_words(said.decode("utf-8", "replace"))
        return reading, ""
