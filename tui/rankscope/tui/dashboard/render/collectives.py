"""Lines of the screen of collectives."""

from rankscope.protocol.shapes import CollectiveRow, Collectives
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.findings import field_lines
from rankscope.tui.dashboard.render.line import Line, Span, left, line, right, wrap
from rankscope.tui.words import groups as words
from rankscope.tui.words.marks import safe

GROUP, RANKS, NUMBER = 12, 7, 16
WIDE = 110


def state_width(width: int) -> int:
    """Cells for who is behind and who waits: all of it where there is room."""
    return 26 if width >= WIDE else 22


def table_head(width: int) -> Line:
    return line(
        "  ",
        Span(left("group", GROUP), "dim"),
        Span(right("ranks", RANKS), "dim"),
        Span(right("collective", NUMBER), "dim"),
        "  ",
        Span(left("ranks there", state_width(width)), "dim"),
        Span("  operation", "dim"),
    )


def group_line(row: CollectiveRow, width: int) -> Line:
    """One group: how far, who is behind, and in what the others wait."""
    operation = "  ".join(filter(None, (safe(row.operation), safe(row.source))))
    return line(
        "  ",
        left(words.name(row), GROUP),
        Span(right(str(row.size), RANKS), "dim"),
        right(words.spread(row), NUMBER),
        "  ",
        Span(left(words.state(row), state_width(width)), "warn" if row.behind else ""),
        Span(f"  {operation}", "dim"),
    )


def collective_lines(view: Collectives, picture: Picture, width: int) -> list[Line]:
    """What is wrong, then a line a group."""
    lines = field_lines(view.findings, picture, width)
    if view.groups:
        lines += [table_head(width), *(group_line(row, width) for row in view.groups)]
    if view.note:
        lines += [line("  ", Span(text, "dim")) for text in wrap(safe(view.note), width - 4, 3)]
    return lines
