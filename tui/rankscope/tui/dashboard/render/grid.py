"""One cell a rank, grouped by node: where each rank stands on screen.

Three layouts, the first that fits: *spelled* (``4 ●``, a node a line, its readings beside it),
*named* (bare glyphs behind each node's name, several nodes a line), *packed* (bare glyphs in
eights behind the first rank's number). The layout depends on the nodes and the room alone, so
that nothing moves when a rank's state changes.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import Line, Span, StyleName, left, line, right
from rankscope.tui.dashboard.standing import Nodes
from rankscope.tui.words.marks import Tone

MAX_LABEL = 16
SPELLED_MAX = 128
"""More ranks than this are never spelled out: a number beside each would drown the glyphs."""
EIGHT = 8

TONE_STYLES: dict[Tone, StyleName] = {"good": "good", "quiet": "dim", "warn": "warn", "bad": "bad"}


@dataclass(frozen=True)
class Row:
    """A line of the grid: ``cells`` are (column, rank); ``labels`` are (column, text)."""

    labels: tuple[tuple[int, str], ...]
    cells: tuple[tuple[int, int], ...]
    host: str | None = None
    """The node whose readings stand to the right of this line."""

    @cached_property
    def ranks(self) -> list[int]:
        return [rank for _, rank in self.cells]


@dataclass(frozen=True)
class Plan:
    kind: Literal["spelled", "named", "packed"]
    rows: tuple[Row, ...]
    number_width: int
    """Cells of a rank's number in front of its glyph; 0 where there is none."""
    end: int
    """The first column to the right of all cells."""

    @cached_property
    def lines(self) -> dict[int, int]:
        """The line of each rank."""
        return {rank: y for y, row in enumerate(self.rows) for _, rank in row.cells}

    def row_of(self, rank: int) -> int | None:
        """The line a rank stands on."""
        return self.lines.get(rank)

    def above_or_below(self, rank: int, lines: int) -> int:
        """The rank ``lines`` further down (up when negative), as near as can be."""
        y = self.row_of(rank)
        if y is None:
            return rank
        column = next(x for x, r in self.rows[y].cells if r == rank)
        target = self.rows[max(0, min(len(self.rows) - 1, y + lines))]
        return min(target.cells, key=lambda cell: abs(cell[0] - column))[1]


_planned: list[tuple[Nodes, int, int, Plan]] = []
"""The newest few, known by identity: hashing thousands of ranks takes longer than most keys do."""


def plan(nodes: Nodes, width: int, height: int) -> Plan:
    """The layout of ``nodes`` for ``width`` columns; ``height`` is what can be seen at once."""
    for known, *size, made in _planned:
        if known is nodes and size == [width, height]:
            return made
    made = _plan(nodes, width, height)
    _planned.append((nodes, width, height, made))
    del _planned[:-4]
    return made


def _plan(nodes: Nodes, width: int, height: int) -> Plan:
    if sum(len(ranks) for _, ranks in nodes) <= SPELLED_MAX:
        spelled = _spelled(nodes, width)
        if len(spelled.rows) <= max(height, 1):
            return spelled
    named = _named(nodes, width)
    return named if len(named.rows) <= height else _packed(nodes, width)


def _label_width(nodes: Nodes) -> int:
    return min(MAX_LABEL, max((len(host or "not here") for host, _ in nodes), default=0))


def _number_width(nodes: Nodes) -> int:
    return len(str(max((max(ranks) for _, ranks in nodes), default=0)))


def _spelled(nodes: Nodes, width: int) -> Plan:
    label, number = _label_width(nodes), _number_width(nodes)
    start, size = label + 3, number + 4
    a_line = max(1, (width - start - 1) // size)
    if a_line > EIGHT:
        a_line -= a_line % EIGHT
    rows: list[Row] = []
    for host, ranks in nodes:
        for first in range(0, len(ranks), a_line):
            cells = enumerate(ranks[first : first + a_line])
            rows.append(
                Row(
                    labels=((1, left(host or "not here", label)),) if first == 0 else (),
                    cells=tuple((start + i * size, rank) for i, rank in cells),
                    host=host if first == 0 else None,
                )
            )
    widest = max((len(row.cells) for row in rows), default=0)
    return Plan("spelled", tuple(rows), number, start + widest * size)


def _named(nodes: Nodes, width: int) -> Plan:
    label = _label_width(nodes)
    block = max((len(ranks) for _, ranks in nodes), default=1)
    room = max(1, width - label - 3)
    across = max(1, (width - 1) // (label + block + 3)) if block <= room else 1
    rows: list[Row] = []
    for first in range(0, len(nodes), across):
        labels: list[tuple[int, str]] = []
        lines: list[list[tuple[int, int]]] = [[]]
        for place, (host, ranks) in enumerate(nodes[first : first + across]):
            x = 1 + place * (label + block + 3)
            labels.append((x, left(host or "not here", label)))
            for index, rank in enumerate(ranks):
                y, column = divmod(index, room)
                if y == len(lines):
                    lines.append([])
                lines[y].append((x + label + 1 + column, rank))
        rows += [Row(tuple(labels) if y == 0 else (), tuple(c)) for y, c in enumerate(lines)]
    return Plan("named", tuple(rows), 0, width)


def _packed(nodes: Nodes, width: int) -> Plan:
    number = _number_width(nodes)
    start = number + 3
    eights = max(1, (width - start + 1) // (EIGHT + 1))
    a_line = eights * EIGHT
    order = [rank for _, ranks in nodes for rank in ranks]
    rows = [
        Row(
            labels=((1, right(str(order[first]), number)),),
            cells=tuple(
                (start + i + i // EIGHT, rank)
                for i, rank in enumerate(order[first : first + a_line])
            ),
        )
        for first in range(0, len(order), a_line)
    ]
    return Plan("packed", tuple(rows), 0, width)


def grid_line(grid: Plan, y: int, picture: Picture, cursor: int | None) -> Line:
    """Line ``y`` of the grid without what stands beside it."""
    row = grid.rows[y]
    spans: list[Span] = []
    x = 0
    for column, text in row.labels:
        if column < (row.cells[0][0] if row.cells else column + 1):
            spans.append(Span(" " * (column - x) + text, "dim"))
            x = column + len(text)
    labels = [each for each in row.labels if row.cells and each[0] > row.cells[0][0]]
    if not grid.number_width:
        spans += _glyphs(row, labels, x, picture, cursor)
        return tuple(spans)
    for column, rank in row.cells:
        mark = picture.mark(rank)
        style = "cursor" if rank == cursor else TONE_STYLES[mark.tone]
        spans.append(Span(" " * (column - x)))
        number = right(str(rank), grid.number_width)
        spans.append(Span(number, "cursor" if rank == cursor else ""))
        spans.append(Span(f" {mark.glyph}", style))
        x = column + grid.number_width + 2
    return tuple(span for span in spans if span.text)


def _glyphs(
    row: Row, labels: list[tuple[int, str]], x: int, picture: Picture, cursor: int | None
) -> list[Span]:
    """Bare glyphs from column ``x`` on. One span for all that look the same, with the blanks
    between them: it is what thousands of ranks are drawn with."""
    spans: list[Span] = []
    text = ""
    style: StyleName = ""
    now: StyleName
    for (column, rank), mark in zip(row.cells, picture.marks_of(row.ranks), strict=True):
        while labels and labels[0][0] < column:
            at, label = labels.pop(0)
            spans += [Span(text, style), Span(" " * (at - x) + label, "dim")]
            text, style, x = "", "", at + len(label)
        now = "cursor" if rank == cursor else TONE_STYLES[mark.tone]
        if now != style:
            if text:
                spans.append(Span(text, style))
            text, style = "", now
            if column > x:
                spans.append(Span(" " * (column - x)))
        elif column > x:
            text += " " * (column - x)
        text += mark.glyph
        x = column + 1
    spans.append(Span(text, style))
    return [span for span in spans if span.text]


def tally(picture: Picture) -> Line:
    """How many ranks are in which state, the gravest first."""
    counts: Counter[tuple[str, str, Tone]] = Counter()
    for mark, number in picture.tally.items():
        # At work is one state here, whatever the phase.
        word = "at work" if mark.tone == "good" else mark.word
        counts[mark.glyph, word, mark.tone] += number
    order: Sequence[Tone] = ("bad", "warn", "quiet", "good")
    spans: list[str | Span] = []
    for (glyph, word, tone), number in sorted(
        counts.items(), key=lambda item: (order.index(item[0][2]), item[0][1])
    ):
        spans += [Span(glyph, TONE_STYLES[tone]), f" {number} {word}   "]
    return line(*spans)
