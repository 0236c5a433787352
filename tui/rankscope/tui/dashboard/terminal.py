"""What the terminal can show."""

import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path


def is_usable() -> bool:
    """Whether there is a terminal to draw on and to read keys from.

    Textual reads the real stdin and draws on the real stderr, whatever stdout is.
    """
    streams = (sys.__stdin__, sys.__stderr__)
    try:
        return all(stream is not None and stream.isatty() for stream in streams)
    except ValueError:  # closed
        return False


@contextmanager
def keys_held() -> Iterator[None]:
    """Keys typed meanwhile are neither echoed nor acted upon: they wait for who reads them next."""
    try:
        descriptor = sys.__stdin__.fileno()  # type: ignore[union-attr]
        before = termios.tcgetattr(descriptor)
        quiet = termios.tcgetattr(descriptor)
        quiet[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
        termios.tcsetattr(descriptor, termios.TCSANOW, quiet)
    except (termios.error, OSError, ValueError, AttributeError):
        yield
        return
    try:
        yield
    finally:
        with suppress(termios.error, OSError):
            termios.tcsetattr(descriptor, termios.TCSANOW, before)


def shows_utf8(environ: Mapping[str, str]) -> bool:
    """Whether the locale of ``environ`` is a UTF-8 one, by the order of locale(7)."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        if value := environ.get(name, ""):
            return "utf8" in value.lower().replace("-", "")
    return False


def environment_at_start() -> dict[str, str]:
    """The environment this process was given.

    Not ``os.environ``: in a C locale Python sets ``LC_CTYPE`` to a UTF-8 one for itself (PEP 538),
    which says nothing of the terminal.
    """
    try:
        raw = Path("/proc/self/environ").read_bytes()
    except OSError:
        import os

        return dict(os.environ)
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if entry)
    return {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, _, v in pairs}
