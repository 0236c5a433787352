"""One sentinel a node: a lock file that a killed one leaves free.

It holds "<pid> <start time>", and its modification time moves while the sentinel does: one that is
stopped, or hangs, is told by that (``nodeleader``).
"""

import contextlib
import fcntl
import os
import time
from pathlib import Path

from rankscope.protocol import procs

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class Lock:
    """An flock on ``path``; the kernel lets go of it however its holder ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, patience_s: float = 0.0) -> bool:
        """Take the lock; False when another one still holds it after ``patience_s``.

        Some patience tells a holder from one who only tests the lock for a moment. Raises OSError
        when the file cannot be made.
        """
        deadline = time.monotonic() + patience_s
        while not (taken := self._try()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return taken

    def renew(self) -> bool:
        """Show that this process lives; whether the lock is still its own.

        A folder that was removed, and made again by a rank, has another file at the path: it is
        taken, unless another sentinel was faster. Where there is no folder, no other can be there.
        """
        if self._descriptor is None:
            return False
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._descriptor), self.path.stat()):
                os.utime(self._descriptor)
                return True
        before, self._descriptor = self._descriptor, None
        try:
            taken = self._try()
        except OSError:
            taken, self._descriptor = True, before
        else:
            os.close(before)
        return taken

    def _try(self) -> bool:
        while True:
            descriptor = os.open(self.path, _FLAGS, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            # The last holder removes the file as it goes: a lock on a file that is no longer at
            # its path keeps nobody out.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), self.path.stat()):
                    self._descriptor = descriptor
                    os.ftruncate(descriptor, 0)
                    pid = os.getpid()
                    os.pwrite(descriptor, f"{pid} {procs.start_time_s(pid)}\n".encode(), 0)
                    return True
            os.close(descriptor)

    def release(self, *, remove: bool = False) -> None:
        """Let go, said and not left to the process's end: a thread that hangs in a driver can
        keep a dying process, and with it the lock, for ever."""
        if self._descriptor is None:
            return
        if remove:
            with contextlib.suppress(OSError):
                self.path.unlink()
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
        self._descriptor = None
