"""A bell that wakes a thread which waits for a socket, and that may be rung from any thread.

Its descriptor is never closed: whoever rings it late, when its session has ended, must not write
into a file that was given the same number since. The next session of the process takes it over.
"""

import contextlib
import os

_free: "list[Bell]" = []


class Bell:
    """Of one session. Raises OSError, or AttributeError where the system has no such thing."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Can be read once the bell was rung, until :meth:`hush`."""

    def ring(self) -> None:
        """Waits for nothing and never raises."""
        with contextlib.suppress(OSError):
            os.eventfd_write(self.descriptor, 1)

    def hush(self) -> None:
        """Forget that it was rung."""
        with contextlib.suppress(OSError):  # it was not
            os.eventfd_read(self.descriptor)


def taken() -> Bell | None:
    """A bell that nobody else listens to; None where there is none to be had."""
    while _free:
        bell = _free.pop()
        if bell.pid == os.getpid():  # else a fork's parent listens to it
            bell.hush()
            return bell
    try:
        return Bell()
    except (OSError, AttributeError):
        return None


def given_back(bell: Bell) -> None:
    """Its session has ended."""
    _free.append(bell)
