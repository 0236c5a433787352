"""A real pseudo-terminal with a program in it, and an emulator that keeps its screen.

The program gets the pty as its controlling terminal, so that Ctrl-Z, window sizes and a hang-up
reach it as they would over SSH.
"""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import pyte

# A session leader that opens a terminal gets it as its controlling terminal (Linux): so the shell
# opens it, and no code runs between fork and exec in this process.
START = 'tty=$1; shift; exec "$@" <"$tty" >"$tty" 2>"$tty"'

PRIVATE_MODE = re.compile(rb"\x1b\[\?(\d+)([hl])")
# Sequences with a private marker pyte does not know: kitty's keyboard protocol, mode queries.
UNKNOWN_TO_PYTE = re.compile(rb"\x1b\[[<>=][\d;]*[a-zA-Z]|\x1b\[\?[\d;]*\$p")
UNFINISHED = re.compile(rb"\x1b(\[[<>=?]?[\d;]*\$?)?$")

KEYS = {
    "enter": "\r",
    "escape": "\x1b",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "pagedown": "\x1b[6~",
    "end": "\x1b[F",
    "ctrl+c": "\x03",
    "ctrl+p": "\x10",
    "ctrl+z": "\x1a",
}

CLEAN = {
    1049: False,  # the alternate screen
    25: True,  # the cursor
    7: True,  # line wrap
    1000: False,  # mouse, in its four forms
    1003: False,
    1006: False,
    1015: False,
    1004: False,  # focus reports
    2004: False,  # bracketed paste
    2048: False,  # in-band resize reports
}
"""The private modes a program must leave behind, by number."""

FIXED = ("LC_", "NO_COLOR", "COLUMNS", "LINES")
"""Variables that would decide what is seen here instead of the terminal itself."""


class Screen(pyte.Screen):
    """pyte's, which has no second screen: leaving that begins a line of its own, as it would be
    where the cursor is put back to before the program."""

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        super().reset_mode(*modes, **kwargs)
        if kwargs.get("private") and 1049 in modes:
            self.cursor_position(self.lines)
            self.linefeed()
            self.carriage_return()


class Terminal:
    """``command`` on a pty of ``columns`` × ``rows``. Use as a context manager.

    ``screen`` is pyte's; ``raw`` is every byte the program wrote.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._master, self._slave = pty.openpty()
        self._resize_pty(columns, rows)
        self.attributes_before = termios.tcgetattr(self._slave)
        self.screen = Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self._held = b""
        self.raw = bytearray()
        self.came_s = 0.0
        """When it wrote last (``time.monotonic``), as far as that was read."""
        environment = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
        base = {k: v for k, v in os.environ.items() if not k.startswith(FIXED)}
        self.started_s = time.monotonic()
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", START, "sh", os.ttyname(self._slave), *command],
            env={**base, **environment, **(env or {})},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.lose()

    # --- what the program wrote --------------------------------------------------------------

    def text(self) -> str:
        """The screen as lines, trailing blanks removed."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def read(self, timeout_s: float = 0.05) -> bool:
        """Take in what the program writes within ``timeout_s``; False when nothing came."""
        ready, _, _ = select.select([self._master], [], [], timeout_s)
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # EIO: the other side is closed
            return False
        self.came_s = time.monotonic()
        self.raw += data
        data = UNKNOWN_TO_PYTE.sub(b"", self._held + data)
        unfinished = UNFINISHED.search(data)
        cut = unfinished.start() if unfinished else len(data)
        self._held = data[cut:]
        self._stream.feed(data[:cut])
        return bool(data)

    def wait(self, condition: Callable[[str], Any], *, within_s: float = 60.0) -> str:
        """The screen's text as soon as ``condition`` holds for it.

        Raises :class:`AssertionError` with the screen when it does not within ``within_s``.
        """
        deadline = time.monotonic() + within_s
        while not condition(text := self.text()):
            assert time.monotonic() < deadline, f"not seen within {within_s} s:\n{text}"
            if not self.read() and self.process.poll() is not None and not self.read():
                text = self.text()
                assert condition(text), f"ended, and not seen:\n{text}"
        return text

    def wait_for(self, *words: str, within_s: float = 60.0) -> str:
        """The screen's text once it shows all of ``words``."""
        return self.wait(lambda text: all(word in text for word in words), within_s=within_s)

    def mode(self, number: int) -> bool | None:
        """Whether a private mode is set; None when the program never touched it."""
        found = [flag for n, flag in PRIVATE_MODE.findall(bytes(self.raw)) if int(n) == number]
        return found[-1] == b"h" if found else None

    def unclean(self) -> list[str]:
        """What the program left behind: modes, keyboard protocol, terminal attributes."""
        left = [
            f"mode {number} is {'on' if self.mode(number) else 'off'}"
            for number, wanted in CLEAN.items()
            if self.mode(number) not in (None, wanted)
        ]
        if self.raw.count(b"\x1b[>") > self.raw.count(b"\x1b[<u"):
            left.append("the keyboard protocol is still on")
        if termios.tcgetattr(self._slave) != self.attributes_before:
            left.append("the terminal's attributes are not restored")
        return left

    # --- what is done to it ------------------------------------------------------------------

    def press(self, *keys: str) -> None:
        """Type keys: names of :data:`KEYS`, or the characters themselves."""
        for key in keys:
            assert key in KEYS or len(key) == 1, f"no such key: {key}"
            os.write(self._master, KEYS.get(key, key).encode())

    def type(self, text: str) -> None:
        """Send ``text`` as it is, in one write: it arrives in one piece."""
        os.write(self._master, text.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Change the window's size; the program gets SIGWINCH."""
        self.screen.resize(rows, columns)
        self.screen.reset()
        self._resize_pty(columns, rows)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def hang_up(self) -> None:
        """Close the terminal, as a lost SSH connection does."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def lose(self) -> None:
        """Lose the terminal as a dropped connection does: both of this side's ends are closed."""
        self.hang_up()
        if self._slave >= 0:
            os.close(self._slave)
            self._slave = -1

    def fill(self, *, within_s: float = 60.0) -> None:
        """Read nothing more and stuff the pty, so that the program's next write blocks."""
        deadline = time.monotonic() + within_s
        os.set_blocking(self._slave, False)
        try:
            while time.monotonic() < deadline:
                os.write(self._slave, b"\0" * 4096)
        except BlockingIOError:
            pass
        finally:
            # The flag is the open file's, and the program opened its own: it still blocks.
            os.set_blocking(self._slave, True)

    def exit_code(self, *, within_s: float = 60.0) -> int:
        """The program's exit code once it ended; its last words are read meanwhile."""
        deadline = time.monotonic() + within_s
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running:\n{self.text()}"
            with contextlib.suppress(OSError, ValueError):
                self.read()
        with contextlib.suppress(OSError, ValueError):
            while self.read(0.0):
                pass
        return self.process.returncode

    def _resize_pty(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
