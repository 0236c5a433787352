"""The first picture, drawn before Textual is loaded: half of the start-up time is its import.

The same screen is drawn by the same functions; Textual then takes the terminal over and draws it
again.
"""

import contextlib
import os
import sys
import time
from collections.abc import Sequence

from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.ascii import ascii_only
from rankscope.tui.dashboard.render.line import Line, plain
from rankscope.tui.dashboard.render.look import sgr
from rankscope.tui.dashboard.screens.base import Room
from rankscope.tui.dashboard.screens.overview import OverviewScreen

ENTER = "\x1b[?1049h\x1b[?25l\x1b[H"
"""The alternate screen, without a cursor, from its first cell."""


def paint_first(picture: Picture, *, utf8: bool, colour: bool) -> None:
    """Draw ``picture`` on the terminal, unless it cannot take it at once."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        descriptor = sys.__stderr__.fileno()  # type: ignore[union-attr]
        columns, rows = os.get_terminal_size(descriptor)
        if columns < 1 or rows < 1:
            return
        layout = OverviewScreen().layout(picture, Room(columns, rows, time.monotonic()))
        text = escapes(layout.lines(rows), utf8=utf8, colour=colour)
        os.write(descriptor, text.encode())


def escapes(lines: Sequence[Line], *, utf8: bool, colour: bool) -> str:
    """What a terminal must be sent to show ``lines`` on the alternate screen."""
    return ENTER + "\r\n".join(_escaped(each, utf8, colour) for each in lines)


def _escaped(content: Line, utf8: bool, colour: bool) -> str:
    parts = []
    for span in content:
        text = plain(span.text) if utf8 else ascii_only(plain(span.text))
        parameters = sgr(span.style, colour=colour)
        parts.append(f"\x1b[{parameters}m{text}\x1b[0m" if parameters else text)
    return "".join(parts)
