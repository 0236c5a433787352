"""A table whose columns keep their width; a narrow screen drops the last ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rankscope.tui.dashboard.render.line import Line, Span, left, right

Row = TypeVar("Row")
GAP = 2


@dataclass(frozen=True)
class Column(Generic[Row]):
    head: str
    width: int
    cell: Callable[[Row], Span]
    to_right: bool = True


def columns_that_fit(
    columns: Sequence[Column[Row]], width: int, grow: str = ""
) -> list[Column[Row]]:
    """The columns from the left that fit in ``width`` cells; the first is always kept.

    What is left over goes to the column named ``grow``, up to twice its width.
    """
    kept: list[Column[Row]] = []
    room = width
    for column in columns:
        need = column.width + (GAP if kept else 0)
        if kept and need > room:
            break
        kept.append(column)
        room -= need
    return [
        Column(c.head, c.width + min(room, c.width), c.cell, c.to_right)
        if c.head == grow and room > 0
        else c
        for c in kept
    ]


def head_line(columns: Sequence[Column[Row]]) -> Line:
    texts = [right(c.head, c.width) if c.to_right else left(c.head, c.width) for c in columns]
    return (Span((" " * GAP).join(texts), "dim"),)


def row_line(columns: Sequence[Column[Row]], row: Row) -> Line:
    spans: list[Span] = []
    for column in columns:
        cell = column.cell(row)
        text = right(cell.text, column.width) if column.to_right else left(cell.text, column.width)
        gap = " " * GAP if spans else ""
        if spans and (cell.style == spans[-1].style or not cell.text.strip()):
            spans[-1] = Span(spans[-1].text + gap + text, spans[-1].style)
        elif gap and spans[-1].style == "":
            spans[-1] = Span(spans[-1].text + gap)
            spans.append(Span(text, cell.style))
        else:
            spans.append(Span(gap))
            spans.append(Span(text, cell.style))
    return tuple(span for span in spans if span.text)
