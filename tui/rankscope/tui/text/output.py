"""Printing text: glyphs the terminal has, colour only on a terminal that wants it."""

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from functools import cache

from rankscope.tui.dashboard.terminal import environment_at_start, shows_utf8
from rankscope.tui.words.marks import Tone, plain, safe

_COLOURS: Mapping[Tone, str] = {"good": "32", "quiet": "2", "warn": "33", "bad": "1;31"}
DEFAULT_WIDTH = 80
MAX_WIDTH = 200
"""Lines longer than this are hard to read."""
_TONES = re.compile("\x01([a-z]+)\x02|\x03")


def toned(text: str, tone: Tone) -> str:
    """``text`` marked to be coloured by :func:`write` where colour is wanted."""
    return f"\x01{tone}\x02{text}\x03"


def untoned(text: str) -> str:
    """``text`` without its marks."""
    return _TONES.sub("", text)


def coloured(text: str) -> str:
    """``text`` with its marks as ANSI colours."""

    def escape(match: re.Match[str]) -> str:
        return f"\x1b[{_COLOURS[match[1]]}m" if match[1] else "\x1b[0m"  # type: ignore[index]

    return _TONES.sub(escape, text)


def wants_colour(is_terminal: bool, environ: Mapping[str, str]) -> bool:
    """Colour is for terminals, unless ``NO_COLOR`` is set or the terminal is dumb."""
    return is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def write(lines: Iterable[str]) -> None:
    """Print ``lines`` on stdout."""
    wanted = wants_colour(sys.stdout.isatty(), os.environ)
    render = coloured if wanted else untoned
    for line in lines:
        print(plain(render(line), utf8()))


def complain(line: str) -> None:
    """Print ``line`` on stderr, which may be closed; paths in it may hold control characters."""
    with contextlib.suppress(OSError, ValueError):
        print(plain(safe(line), utf8()), file=sys.stderr, flush=True)


def width() -> int:
    """Columns to write in: the terminal's, and 80 where there is none."""
    if not sys.stdout.isatty():
        return DEFAULT_WIDTH
    return max(40, min(MAX_WIDTH, shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns))


@cache
def utf8() -> bool:
    """Whether this process's locale is a UTF-8 one."""
    return shows_utf8(environment_at_start())
