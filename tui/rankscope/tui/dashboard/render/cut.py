"""What does not fit is said to be left out."""

from collections.abc import Sequence

from rankscope.tui.dashboard.render.line import Line, Span, clip, line
from rankscope.tui.words import numbers


def cut(lines: Sequence[Line], most: int, width: int, where: str) -> list[Line]:
    """``lines``, or so many of them that one more has room that tells how many are left out and
    ``where`` they are."""
    if len(lines) <= most:
        return list(lines)
    if most < 1:
        return []
    return [*lines[: most - 1], left_out(len(lines) - most + 1, "line", width, where)]


def left_out(count: int, what: str, width: int, where: str, indent: int = 4) -> Line:
    """``… 5 more lines: v shows them``."""
    more = numbers.plural(count, f"more {what}")
    text = clip(f"… {more}: {where}", max(0, width - indent - 1))
    return line(" " * indent, Span(text, "dim"))
