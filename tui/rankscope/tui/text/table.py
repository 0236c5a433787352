"""A plain table: columns as wide as their widest cell, as far as the width allows.

Where it does not, columns that may (``least``) are shortened; what still does not fit goes, from
the right.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.tui.text.output import untoned

GAP = "  "


@dataclass(frozen=True)
class Column:
    title: str
    right: bool = True
    """Numbers stand to the right, words to the left."""
    least: int | None = None
    """How far its cells may be shortened, in characters; None: not at all. They are not toned."""


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int = 80, indent: str = ""
) -> list[str]:
    """Title line and rows. Cells may be toned; a column that does not fit is left out."""
    widths = [
        max([len(column.title), *(len(untoned(row[at])) for row in rows)])
        for at, column in enumerate(columns)
    ]
    _shorten(columns, widths, width - len(indent))
    kept = 0
    used = len(indent)
    for at, size in enumerate(widths):
        used += size + (len(GAP) if at else 0)
        if used > width and at:
            break
        kept += 1
    titles = [column.title for column in columns]
    return [
        (
            indent + GAP.join(_cell(row[at], widths[at], columns[at].right) for at in range(kept))
        ).rstrip()
        for row in [titles, *rows]
    ]


def _shorten(columns: Sequence[Column], widths: list[int], width: int) -> None:
    """Take from ``widths`` what is too much, the last column that may be shortened first."""
    too_much = sum(widths) + len(GAP) * (len(widths) - 1) - width
    for at in reversed(range(len(columns))):
        least = columns[at].least
        if least is not None and too_much > 0:
            shorter = max(least, len(columns[at].title), widths[at] - too_much)
            if shorter < widths[at]:
                too_much -= widths[at] - shorter
                widths[at] = shorter


def clipped(text: str, width: int) -> str:
    """``text`` without escapes in at most ``width`` characters; what is cut off shows as ``…``."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _cell(text: str, width: int, right: bool) -> str:
    size = len(untoned(text))
    if size > width:
        return text[: width - 1] + "…"
    room = " " * (width - size)
    return room + text if right else text + room
