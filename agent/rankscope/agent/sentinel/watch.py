"""One watched process: never another one that was given its pid."""

import contextlib
import os
import time

from rankscope.agent.evidence import blackbox
from rankscope.agent.nodedir import Registration
from rankscope.agent.sentinel import ending, procstat, stopped
from rankscope.agent.sentinel.procstat import Stat, StatFile
from rankscope.agent.sentinel.schedstat import QueueFile
from rankscope.protocol.messages import ProcessSample

SAME_START_S = 0.005
"""Start times count whole ticks of 0.01 s: what differs by less is equal."""


class Watch:
    """A rank's process from the moment its registration was seen.

    ``pidfd`` becomes readable the moment it ends; it is None where the kernel has none to give
    (before 5.3, or forbidden), and then :meth:`look` finds out by polling.
    """

    def __init__(self, registration: Registration, now: float) -> None:
        self.registration = registration
        self.state: stopped.State = "alive"
        self.state_t_s = now
        self.pidfd: int | None = None
        self._box: int | None = None
        self._file: StatFile | None = None
        self._queue: QueueFile | None = None
        self._last: Stat | None = None
        self._line = b""  # newer than that, and not parsed yet
        self._ready_t_s: float | None = None  # since when each look found it ready to run
        self._same_user = False
        with contextlib.suppress(OSError):
            self._open(registration.pid)
        if self._file is None:
            self.close()
        if self._last is not None:
            age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - self._last.start_time_s
            self.state_t_s = now - max(0.0, age_s)
            if stopped.next_state("alive", self._last.state) == "stopped":
                self.state, self.state_t_s = "stopped", now

    def _open(self, pid: int) -> None:
        # The pidfd first, by which it can be asked how it ended though it has been reaped. Whoever
        # has the pid now, and the registered start time after that, is the one that registered.
        with contextlib.suppress(OSError, AttributeError):
            self.pidfd = os.pidfd_open(pid)
        file = StatFile(pid)
        stat = file.read()
        if stat is None or abs(stat.start_time_s - self.registration.start_time_s) >= SAME_START_S:
            file.close()
            return
        queue = QueueFile(pid)
        if file.read() is None:  # reaped meanwhile: it may be another one's
            queue.close()
            queue = QueueFile(-1)
        self._file, self._last, self._queue = file, stat, queue
        self._same_user = ending.same_user(pid)
        if self.registration.calls >= 0:
            self._box = blackbox.open_of(pid, self.registration.calls)

    @property
    def found(self) -> bool:
        """Whether the registered process was there at all when first looked for."""
        return self._file is not None

    def look(self, now: float) -> bool:
        """Read the process's state; returns whether it changed. Ended ones stay as they are."""
        if self.state == "ended" or self._file is None:
            return False
        line = self._file.line()
        try:
            letter = procstat.letter(line)
        except (ValueError, IndexError):
            return False  # gone
        if letter in procstat.ENDED:
            return False  # its end is told by `end`, with its cause
        self._line = line
        if letter != "t":  # held by a tracer for a moment says nothing
            if letter != "R":
                self._ready_t_s = None
            elif self._ready_t_s is None:
                self._ready_t_s = now
        state = stopped.next_state(self.state, letter)
        if state == self.state:
            return False
        self.state, self.state_t_s = state, now
        return True

    def has_ended(self) -> bool:
        """For a process without a pidfd: whether it is a zombie or gone."""
        if self._file is None:
            return True
        stat = self._file.read()
        return stat is None or stat.ended

    def end(self, now: float) -> ending.Ending:
        """How it ended, asked once, when its pidfd is readable or :meth:`has_ended`."""
        found: ending.Ending | None = None
        stat = self._file.read() if self._file is not None else None
        if stat is not None:
            found = ending.from_zombie(stat, self._same_user)
            self._last = stat if stat.cpu_s else self._newest()
        if found is None and self.pidfd is not None:
            found = ending.from_pidfd(self.pidfd)
        self.state, self.state_t_s = "ended", now
        self.close()
        return found or ending.VANISHED

    def left(self) -> bytes:
        """The rank's black box, until :meth:`close`; empty where there is none."""
        if self._box is None:
            return b""
        with contextlib.suppress(OSError):
            return os.pread(self._box, blackbox.SIZE_BYTES, 0)
        return b""

    def sample(self, now: float) -> ProcessSample:
        """The process as a report shows it."""
        last = self._newest()
        return ProcessSample(
            attempt=self.registration.attempt,
            rank=self.registration.rank,
            pid=self.registration.pid,
            state=self.state,
            state_s=max(0.0, now - self.state_t_s),
            cpu_s=last.cpu_s if last is not None else 0.0,
            resident_bytes=last.resident_bytes if last is not None else 0,
            ready_s=0.0 if self._ready_t_s is None else max(0.0, now - self._ready_t_s),
            queued_ms=self._queue.read() if self._queue is not None else None,
        )

    def _newest(self) -> Stat | None:
        """What was read of it last, while it lived."""
        if self._line:
            with contextlib.suppress(ValueError, IndexError):
                self._last = procstat.parse(self._line)
            self._line = b""
        return self._last

    def close(self) -> None:
        """Give back its file descriptors."""
        if self._file is not None:
            self._file.close()
        if self._queue is not None:
            self._queue.close()
        if self._box is not None:
            os.close(self._box)
            self._box = None
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
