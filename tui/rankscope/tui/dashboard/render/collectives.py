"""Lines of the screen of collectives."""

from rankscope.protocol.shapes import CollectiveRow, Collectives
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.findings import field_lines
from rankscope.tui.dashboard.render.line import (
    Line,
    Span,
    clip,
    left,
    line,
    right,
    width_of,
    wrap,
)
from rankscope.tui.words import groups as words
from rankscope.tui.words.marks import safe

GROUP, RANKS, NUMBER = 12, 7, 16
STATE = 28
"""Cells for who is behind and who waits."""


def table_head(width: int) -> Line:
    return line(
        "  ",
        Span(left("group", GROUP), "dim"),
        Span(right("ranks", RANKS), "dim"),
        Span(right("collective", NUMBER), "dim"),
        "  ",
        Span(left("ranks there", STATE), "dim"),
        Span("  operation", "dim"),
    )


def group_lines(row: CollectiveRow, width: int) -> list[Line]:
    """One group: how far, who is behind, and in what the others wait; where that stands in the
    user's code in a line of its own where it does not fit."""
    fixed = 2 + GROUP + RANKS + NUMBER + 2 + STATE + 2
    operation = "  ".join(filter(None, (safe(row.operation), safe(row.source))))
    more: list[Line] = []
    if fixed + width_of(operation) >= width:
        operation = safe(row.operation)
        at = f"called at {safe(row.source)}: {operation}" if row.source else f"in {operation}"
        at = clip(at, width - GROUP - 3)
        more = [line(" " * (2 + GROUP), Span(at, "dim"))]
    first = line(
        "  ",
        left(words.name(row), GROUP),
        Span(right(str(row.size), RANKS), "dim"),
        right(words.spread(row), NUMBER),
        "  ",
        Span(left(words.state(row), STATE), "warn" if row.behind else ""),
        Span(f"  {clip(operation, max(0, width - fixed - 1))}", "dim"),
    )
    return [first, *more]


def collective_lines(view: Collectives, picture: Picture, width: int) -> list[Line]:
    """What is wrong, then a line a group."""
    lines = field_lines(view.findings, picture, width)
    if view.groups:
        lines.append(table_head(width))
        for row in view.groups:
            lines += group_lines(row, width)
    if view.note:
        lines += [line("  ", Span(text, "dim")) for text in wrap(safe(view.note), width - 4, 3)]
    return lines
