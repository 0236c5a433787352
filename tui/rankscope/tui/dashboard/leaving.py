"""Leaving: the terminal is put back however the dashboard ends.

Textual restores the terminal when its loop ends. A terminal that no longer reads, or is gone,
blocks that loop; then, a moment after the wish to leave, this module restores it by itself.
"""

import contextlib
import os
import signal
import sys
import tempfile
import termios
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

PATIENCE_S = 3.0
"""How long an orderly end may take."""

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

RESTORE = (
    b"\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?1015l"  # mouse
    b"\x1b[?2004l\x1b[?2048l\x1b[?1004l\x1b[<u"  # paste, resize and focus reports, keyboard
    b"\x1b[?7h\x1b[?1049l\x1b[?25h\x1b[0m"  # line wrap, alternate screen, cursor, colours
)


class Leaving:
    """Turns signals into an orderly exit with code 128+signal. A context manager.

    ``at_last`` is called with the code where the terminal keeps the dashboard from ending, and says
    with which one the process ends: whoever has more to do than to show does it there. It runs in a
    thread, and the block does not end any more.
    """

    def __init__(self, at_last: Callable[[int], int] = int) -> None:
        self._at_last = at_last
        self._end: threading.Thread | None = None
        self._turn = threading.Lock()
        self._owned = False
        self._attributes: list[Any] | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._ask: Callable[[int], None] | None = None
        self._done = threading.Event()
        self._armed = False
        self.code: int | None = None
        """The exit code of the signal that came, if one did."""

    def __enter__(self) -> Self:
        with contextlib.suppress(termios.error, OSError, ValueError):
            self._attributes = termios.tcgetattr(sys.__stdin__.fileno())  # type: ignore[union-attr]
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        with self._turn:
            self._done.set()
        if self._owned and self._end is not None:
            self._end.join()
        for number, handler in self._before.items():
            # None: a handler that was not installed from Python, and cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def when_asked(self, ask: Callable[[int], None]) -> None:
        """``ask(code)`` begins the orderly exit; it is called in a signal handler."""
        self._ask = ask
        if self.code is not None:
            ask(self.code)

    def begin(self, code: int) -> None:
        """An exit has begun: should it not end soon, the process ends with ``code`` anyway."""
        if not self._armed:
            self._armed = True
            self._end = threading.Thread(
                target=self._end_anyway, args=(code,), name="rankscope-leaving", daemon=True
            )
            self._end.start()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # The first one counts: a hang-up is often followed by SIGTERM.
        if self.code is None:
            self.code = 128 + number if number != signal.SIGINT else 130
        self.begin(self.code)
        if self._ask is not None:
            self._ask(self.code)

    def _end_anyway(self, code: int) -> None:
        self._done.wait(PATIENCE_S)
        with self._turn:
            if self._done.is_set():
                return
            self._owned = True
        restoring = threading.Thread(target=self.restore, daemon=True)
        restoring.start()
        restoring.join(0.5)  # a terminal that does not read takes no bytes either
        try:
            code = self._at_last(code)
        finally:
            os._exit(code)

    def restore(self) -> None:
        """Put the terminal back as it was found, without Textual."""
        with contextlib.suppress(termios.error, OSError, ValueError):
            if self._attributes is not None:
                fileno = sys.__stdin__.fileno()  # type: ignore[union-attr]
                termios.tcsetattr(fileno, termios.TCSANOW, self._attributes)
        with contextlib.suppress(OSError, ValueError):
            os.write(sys.__stderr__.fileno(), RESTORE)  # type: ignore[union-attr]


def write_crash_file(error: BaseException) -> Path | None:
    """The traceback of ``error`` in a private file, without locals: these may hold keys."""
    text = "".join(traceback.format_exception(error))
    stamp = time.strftime("%Y%m%d-%H%M%S")
    try:
        descriptor, name = tempfile.mkstemp(prefix=f"rankscope-crash-{stamp}-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return None
    return Path(name)
