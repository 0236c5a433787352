"""The training command as a child in the foreground, and the signals meant for it.

Ctrl-C, Ctrl-\\ and the loss of the terminal reach the child from there, as it is in our process
group; every other way of signalling us is passed on once. So nothing arrives twice, except where
somebody signals the whole group with ``kill``, which cannot be told from signalling us alone.
"""

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, TracebackType
from typing import IO, Any, Self

from rankscope.protocol.exits import UserError

PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
FROM_KEYS = frozenset({signal.SIGINT, signal.SIGQUIT})


class Child:
    """``command`` running; its stdin, stdout and stderr are ours unless told otherwise."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        output: IO[bytes] | None = None,
        *,
        stdin: int | None = None,
        own_group: bool = False,
    ) -> None:
        """Raises :class:`UserError` when it cannot be started."""
        try:
            self._process = subprocess.Popen(
                command,
                env=dict(environ),
                stdin=stdin,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                process_group=0 if own_group else None,
            )
        except FileNotFoundError:
            raise UserError(
                f"there is no command {command[0]!r}; check its name and PATH"
            ) from None
        except PermissionError:
            raise UserError(
                f"{command[0]!r} may not be executed; is it a program? (chmod +x, or name its "
                "interpreter: python FILE)"
            ) from None
        except OSError as error:
            raise UserError(f"cannot start {command[0]!r}: {error.strerror}") from None

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit code once it ended, 128+n for signal n."""
        code = self._process.poll()
        return None if code is None else (code if code >= 0 else 128 - code)

    @property
    def died_of(self) -> int | None:
        """The signal that ended it, if one did."""
        code = self._process.returncode
        return -code if code is not None and code < 0 else None

    def send(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def end(self, patience_s: float) -> int:
        """SIGTERM, and SIGKILL when it has not ended within ``patience_s``; its exit code."""
        self.send(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        self.send(signal.SIGKILL)
        self._process.wait()
        code = self.poll()
        assert code is not None
        return code


class Signals:
    """Gathers signals in the main thread while the block lasts, and wakes :meth:`wait`."""

    def __init__(self, handle: Callable[[int], None]) -> None:
        self._handle = handle
        self._came: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (*PASSED_ON, signal.SIGCHLD):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._read)
        os.close(self._write)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self._came.append(number)

    def wait(self, timeout_s: float) -> None:
        """Wait for a signal or ``timeout_s``, then handle all that came."""
        select.select([self._read], [], [], timeout_s)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)
        while self._came:
            self._handle(self._came.pop(0))


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """SIGTERM, SIGHUP and SIGQUIT end this process by way of its ``finally`` blocks."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    ending = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.signal(number, leave) for number in ending}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def in_foreground() -> bool | None:
    """Whether our group is the foreground group of a terminal; None without a terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:  # none, or it was hung up
        return None
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return None
    finally:
        os.close(terminal)


def reached_the_group(number: int, had_terminal: bool) -> bool:
    """Whether ``number``, which we got, was sent to our whole group, and so to the command too.

    Keys are sent to the foreground group. A terminal that goes away is told to its session's
    leader, who tells the group: then it is gone (``had_terminal`` is how it was at the start).
    """
    if number in FROM_KEYS:
        return in_foreground() is True
    if number == signal.SIGHUP:
        leader = os.getsid(0) == os.getpid()
        return had_terminal and in_foreground() is None and not leader
    return False
