"""A plain table: columns as wide as their widest cell; what does not fit goes, from the right."""

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.tui.text.output import untoned

GAP = "  "


@dataclass(frozen=True)
class Column:
    title: str
    right: bool = True
    """Numbers stand to the right, words to the left."""


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int = 80, indent: str = ""
) -> list[str]:
    """Title line and rows. Cells may be toned; a column that does not fit is left out."""
    widths = [
        max([len(column.title), *(len(untoned(row[at])) for row in rows)])
        for at, column in enumerate(columns)
    ]
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


def _cell(text: str, width: int, right: bool) -> str:
    room = " " * (width - len(untoned(text)))
    return room + text if right else text + room
