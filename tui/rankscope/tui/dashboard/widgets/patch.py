"""What a terminal must be sent to turn one picture into the next: the cells that differ. Pure."""

from collections.abc import Sequence
from itertools import compress
from operator import is_not
from typing import get_args

from rankscope.tui.dashboard.render.ascii import ascii_only
from rankscope.tui.dashboard.render.line import BLANK, Line, StyleName, plain, text_of, width_of
from rankscope.tui.dashboard.render.look import sgr

SKIP_FROM = 4
"""Equal cells between two that differ are passed over when they are at least so many: the
sequence that moves the cursor to the right has four bytes."""
ERASE_FROM = 4

CELLS_AT_MOST = 4096
"""Characters of one style that are kept: names from other machines can hold any."""

Cell = tuple[str, StyleName]
EMPTY: Cell = (" ", "")


def patch(
    before: Sequence[Line],
    after: Sequence[Line],
    width: int,
    height: int,
    pen: "Pen",
) -> str:
    """The sequences that change ``before`` on a screen of ``width`` × ``height`` into ``after``.

    Empty when nothing differs. Cursor position aside, the terminal is left as it was found:
    attributes are reset before and after.
    """
    for y in range(height):
        old = before[y] if y < len(before) else BLANK
        new = after[y] if y < len(after) else BLANK
        if old != new:
            _patch_line(pen, y, old, new, width)
    return pen.finished()


class Pen:
    """Collects what is sent, and knows where the cursor is and how it writes."""

    def __init__(self, *, utf8: bool = True, colour: bool = True, dim: bool = True) -> None:
        self._parts: list[str] = []
        self._style: StyleName = ""
        self._utf8 = utf8
        self._colour = colour
        self._dim = dim

    def move(self, x: int, y: int) -> None:
        self._parts.append(f"\x1b[{y + 1};{x + 1}H")

    def forward(self, cells: int) -> None:
        self._parts.append(f"\x1b[{cells}C")

    def write(self, text: str, style: StyleName) -> None:
        if style != self._style:
            parameters = sgr(style, colour=self._colour)
            if not self._dim and parameters == "2":
                parameters = ""
            self._parts.append(f"\x1b[0;{parameters}m" if parameters else "\x1b[0m")
            self._style = style
        self._parts.append(text if self._utf8 else ascii_only(text))

    def erase(self) -> None:
        """Blank the rest of the line."""
        self.write("", "")
        self._parts.append("\x1b[K")

    def finished(self) -> str:
        if self._style:
            self._parts.append("\x1b[0m")
        return "".join(self._parts)


def _patch_line(pen: Pen, y: int, old: Line, new: Line, width: int) -> None:
    before, after = cells(old, width), cells(new, width)
    if after is None:  # characters that are not one cell wide: the whole line, as it is
        pen.move(0, y)
        pen.erase()
        for span in new:
            pen.write(plain(span.text), span.style)
        return
    if before is None:
        pen.move(0, y)
        pen.erase()
        before = [EMPTY] * width
    tail = width
    while tail > 0 and after[tail - 1] == EMPTY:
        tail -= 1
    # Equal cells are the same object, but for those of a table that was emptied meanwhile: to write
    # such a one again does no harm.
    differ = list(compress(range(width), map(is_not, before, after)))
    at = None
    for first, end in _runs(differ):
        if at is None:
            pen.move(first, y)
        elif first > at:
            pen.forward(first - at)
        if end >= tail and end - max(first, tail) >= ERASE_FROM:
            _write(pen, after, first, max(first, tail))
            pen.erase()
            return  # everything behind is blank now, as it is to be
        _write(pen, after, first, end)
        at = end


def _runs(differ: Sequence[int]) -> list[tuple[int, int]]:
    """First and one past the last column of each stretch that is written at once."""
    runs: list[tuple[int, int]] = []
    for x in differ:
        if runs and x - runs[-1][1] < SKIP_FROM:
            runs[-1] = (runs[-1][0], x + 1)
        else:
            runs.append((x, x + 1))
    return runs


def _write(pen: Pen, line: Sequence[Cell], first: int, end: int) -> None:
    x = first
    while x < end:
        style = line[x][1]
        stop = x + 1
        while stop < end and line[stop][1] == style:
            stop += 1
        pen.write("".join(char for char, _ in line[x:stop]), style)
        x = stop


def cells(line: Line, width: int) -> list[Cell] | None:
    """One (character, style) for each column; None where a character is not one cell wide."""
    if len(text_of(line)) != width_of(line):
        return None
    found: list[Cell] = []
    for text, style in line:
        found += map(_CELLS[style].__getitem__, plain(text))
    return found[:width] + [EMPTY] * (width - len(found))


class _Cells(dict[str, Cell]):
    """The cell of each character in one style, made once: then cells are compared by identity."""

    def __init__(self, style: StyleName) -> None:
        super().__init__()
        self._style = style

    def __missing__(self, char: str) -> Cell:
        if len(self) >= CELLS_AT_MOST:
            self.clear()
        # A blank looks the same in every style that does not paint its background.
        unseen = char == " " and self._style not in PAINTED
        cell = self[char] = EMPTY if unseen else (char, self._style)
        return cell


PAINTED = frozenset({"good_block", "quiet_block", "warn_block", "bad_block", "cursor"})
_CELLS: dict[StyleName, _Cells] = {style: _Cells(style) for style in get_args(StyleName)}
