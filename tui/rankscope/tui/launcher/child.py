"""The training command as a child in the foreground, and the signals meant for it.

Ctrl-C, Ctrl-\\ and the loss of the terminal reach the child from there, as it is in our process
group; every other way of signalling us is passed on once. So nothing arrives twice, except where
somebody signals the whole group with ``kill``, which cannot be told from signalling us alone.
What is ignored here (under nohup, in the background of a script) stays ignored, for the child, too.
"""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import FrameType, TracebackType
from typing import IO, Any, Self

import psutil

from rankscope.protocol.exits import UserError

WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
"""By which schedulers say that time is nearly up."""
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, *WARNINGS)
ASK = tuple(number for number in PASSED_ON if number not in WARNINGS)
"""By which somebody asks for an end."""
AGAIN_S = 0.5
"""How often it is looked for an end of the command that nothing told."""
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
                # What a shell has opened for it (``<(…)``); none of our own can be inherited.
                close_fds=False,
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

    def end(self, patience_s: float, signals: "Signals | None" = None) -> int:
        """SIGTERM, and SIGKILL when it has not ended within ``patience_s``; its exit code.

        Any of ``signals``, or an exception, says that patience is over. The processes that it
        started, the ranks, are killed with it: torchrun could not end them any more.
        """
        self.send(signal.SIGTERM)
        deadline_s = time.monotonic() + patience_s
        try:
            while self.poll() is None and not signals:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    break
                if signals is None:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self._process.wait(left_s)
                else:
                    signals.wait(min(left_s, AGAIN_S))
        finally:
            self._kill()
        code = self.poll()
        assert code is not None
        return code

    def ranks(self) -> list[psutil.Process]:
        """The processes that it has started, while it is there.

        Only its own children: a sentinel ends by itself when it hears that the run is over.
        """
        with contextlib.suppress(psutil.Error):
            if self.poll() is None:
                return psutil.Process(self.pid).children()
        return []

    def _kill(self) -> None:
        """Leave nothing of it that runs; nothing is left where it ended by itself."""
        ranks = self.ranks()
        self.send(signal.SIGKILL)
        self._process.wait()
        kill(ranks)


def kill(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL to each that is still there."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


class Signals:
    """Gathers signals in the main thread while the block lasts, and wakes :meth:`wait`.

    None is lost, whenever it comes: it waits here until somebody takes it.
    """

    def __init__(self) -> None:
        self._came: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (*heeded(), signal.SIGCHLD):
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

    def __bool__(self) -> bool:
        """Whether any came that asks for an end, and nobody took it: a warning ends nothing."""
        return any(number in ASK for number in self._came)

    def wait(self, timeout_s: float) -> None:
        """Wait for a signal, the end of a child included, for at most ``timeout_s``."""
        # An event loop that ran meanwhile, a dashboard's, has taken the waking for itself.
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        select.select([self._read], [], [], 0 if self else timeout_s)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

    def take(self, wanted: Collection[int] = PASSED_ON) -> list[int]:
        """Those of ``wanted`` that came, in order; they are the caller's now. From any thread."""
        taken = [number for number in self._came if number in wanted]
        for number in taken:
            self._came.remove(number)
        return taken


def heeded() -> list[int]:
    """Those of ``PASSED_ON`` that are not ignored."""
    return [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Signals that ask for it end this process by way of its ``finally`` blocks."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in heeded()}
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
