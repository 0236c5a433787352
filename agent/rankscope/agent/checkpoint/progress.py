"""How far this rank's save is, to be read from any thread."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

PHASES = ("idle", "staging", "waiting", "writing", "syncing", "publishing", "done", "failed")
"""``waiting``: for rank 0 to make the directory; ``publishing``: this rank's part is written, and
rank 0 puts all parts together."""


class Snapshot(NamedTuple):
    phase: str = "idle"
    phase_s: float = 0.0
    """How long it has been in it."""
    step: int = 0
    request: int = 0
    done_bytes: int = 0
    total_bytes: int = 0
    rate_bytes_per_s: float | None = None
    """Over the writing so far; None before and where nothing was written."""
    text: str = ""
    """What came of it, once it is done or failed."""


class Progress:
    """Written by one save at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._now = Snapshot()
        self._since_s = self._writing_s = clock()
        self._written_s: float | None = None

    def begin(self, step: int, request: int) -> None:
        with self._lock:
            self._now = Snapshot("staging", step=step, request=request)
            self._since_s, self._written_s = self._clock(), None

    def enter(self, phase: str, text: str = "") -> None:
        with self._lock:
            now_s = self._clock()
            if phase == "writing":
                self._writing_s = now_s
            elif self._now.phase == "writing":
                self._written_s = now_s
            self._now, self._since_s = self._now._replace(phase=phase, text=text), now_s

    def expect(self, total_bytes: int) -> None:
        with self._lock:
            self._now = self._now._replace(total_bytes=total_bytes)

    def advance(self, count_bytes: int) -> None:
        with self._lock:
            self._now = self._now._replace(done_bytes=self._now.done_bytes + count_bytes)

    def read(self) -> Snapshot:
        with self._lock:
            now_s = self._clock()
            took_s = (self._written_s or now_s) - self._writing_s
            begun = self._now.done_bytes > 0 and took_s > 0
            return self._now._replace(
                phase_s=now_s - self._since_s,
                rate_bytes_per_s=self._now.done_bytes / took_s if begun else None,
            )
