"""``/proc/<pid>/schedstat``: how long a process's main thread waited for a core."""

import os


class QueueFile:
    """The open schedstat file of one process; like its stat file it stays with that process."""

    def __init__(self, pid: int) -> None:
        """Where the kernel has no such file nothing is read of it, either."""
        try:
            self._descriptor = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = -1

    def read(self) -> int | None:
        """Milliseconds that it was ready to run and had no core, since it began; None if not told.

        The second number, in nanoseconds, by Documentation/scheduler/sched-stats of the kernel.
        """
        if self._descriptor < 0:
            return None
        try:
            return int(os.pread(self._descriptor, 128, 0).split()[1]) // 1_000_000
        except (OSError, ValueError, IndexError):
            return None

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
