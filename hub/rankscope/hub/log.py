"""The hub's own words, on stderr: ``hub.log`` when it was started in the usual way."""

import contextlib
import sys
import time

MAX_LINES = 2000
"""A peer that misbehaves for weeks must not fill the disk."""


class Log:
    """Lines with a time; stops after ``MAX_LINES``. Never raises: the disk may be full."""

    def __init__(self) -> None:
        self._lines = 0
        self._once: set[str] = set()

    def say(self, text: str) -> None:
        if self._lines >= MAX_LINES:
            return
        self._lines += 1
        if self._lines == MAX_LINES:
            text = "this log is full; nothing more is written to it"
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        with contextlib.suppress(OSError, ValueError):
            print(stamp, text, file=sys.stderr, flush=True)

    def once(self, key: str, text: str) -> None:
        """Say ``text`` unless something was said under ``key`` before."""
        if key in self._once or len(self._once) >= MAX_LINES:
            return
        self._once.add(key)
        self.say(text)
