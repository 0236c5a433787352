"""The table of ranks, one line each."""

from rankscope.protocol.shapes import RankRow
from rankscope.tui.dashboard.filtering import parsed
from rankscope.tui.dashboard.ordering import ORDERS, following, ordered
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.grid import TONE_STYLES
from rankscope.tui.dashboard.render.line import Line, Span, StyleName, fit, line
from rankscope.tui.dashboard.render.table import Column, columns_that_fit, head_line, row_line
from rankscope.tui.dashboard.screens.base import Direction, Layout, Room, head_lines
from rankscope.tui.dashboard.screens.selecting import SelectingScreen
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import Mark, rank_mark

AGES = ("for", "heard")
"""Of a run that is over they would tell how long the hub went on."""


def _age_style(row: RankRow) -> StyleName:
    """Silence is worth a look from a few seconds on; ranks speak twice a second."""
    return "warn" if row.heard_s is not None and row.heard_s > 3 and row.phase != "ended" else ""


def columns(picture: Picture) -> list[Column[RankRow]]:
    """The most telling first: a narrow terminal drops them from the right."""
    number = max(4, len(str(max(picture.order, default=0))))

    def mark(row: RankRow) -> Mark:
        return picture.marks.get(row.rank) or rank_mark(row)

    def tone(row: RankRow) -> StyleName:
        return TONE_STYLES[mark(row).tone]

    return [
        Column("rank", number, lambda row: Span(str(row.rank), "strong")),
        Column("", 1, lambda row: Span(mark(row).glyph, tone(row)), to_right=False),
        Column("state", 9, lambda row: Span(mark(row).word, tone(row)), to_right=False),
        Column("step", 7, lambda row: Span(numbers.count(row.step))),
        Column("phase", 9, lambda row: Span(row.phase), to_right=False),
        Column("for", 7, lambda row: Span(numbers.age(row.phase_s))),
        Column("a step", 7, lambda row: Span(numbers.span(row.step_s))),
        Column("host", 10, lambda row: Span(row.host, "dim"), to_right=False),
        Column("peak", 7, lambda row: Span(numbers.size_bytes(row.memory_peak_bytes))),
        Column("loss", 7, lambda row: Span(numbers.loss(row.loss))),
        Column("‖g‖", 7, lambda row: Span(numbers.norm(row.grad_norm))),
        Column("heard", 7, lambda row: Span(numbers.age(row.heard_s), _age_style(row))),
        Column(
            "pid", 7, lambda row: Span(numbers.DASH if row.pid is None else str(row.pid), "dim")
        ),
        Column("tok/s", 7, lambda row: Span(numbers.si(row.tokens_per_s))),
        Column(
            "micro", 5, lambda row: Span(str(row.microbatch) if row.microbatch else numbers.DASH)
        ),
        Column("dropped", 7, lambda row: _counted(row.dropped)),
        Column("missed", 6, lambda row: _counted(row.missed)),
        Column(
            "probes off", 14, lambda row: Span(" ".join(row.probes_off), "warn"), to_right=False
        ),
    ]


def _counted(number: int) -> Span:
    return Span(numbers.count(number), "warn" if number else "dim")


class RanksScreen(SelectingScreen):
    name = "ranks"

    def __init__(self) -> None:
        super().__init__()
        self._follow = True
        self.order = ORDERS[0]
        self._listed: tuple[tuple[object, ...], list[RankRow]] | None = None

    def layout(self, picture: Picture, room: Room) -> Layout:
        top = head_lines(picture, room, brief=room.height < 30)
        if picture.status is None:
            return self.finish(picture, room, top, 0, lambda y: ())
        rows = self._rows(picture)
        shown = columns(picture)
        if picture.ended or picture.snapshot.replay:
            shown = [column for column in shown if column.head not in AGES]
        kept = columns_that_fit(shown, room.width - 4, grow="host")
        top.append(fit(line("   ", *head_line(kept)), room.width))
        at = self._at(picture, rows)

        def line_at(y: int) -> Line:
            cells = row_line(kept, rows[y])
            if y != at:
                return fit(line("   ", *cells), room.width)
            text = "".join(span.text for span in cells)
            return fit(line(" ", Span(f"▸ {text}", "cursor")), room.width)

        show = at if self._follow else None
        order = "" if self.order == ORDERS[0] else self.order
        return self.finish(
            picture, room, top, len(rows), line_at, None, show, filtered=True, order=order
        )

    def sort(self) -> str:
        """Go over to the next order; what it is called."""
        self.order = following(self.order)
        return self.order

    def find(self, step: int, picture: Picture, room: Room) -> bool:
        if step:
            self.move("down" if step > 0 else "up", picture, room)
        return bool(self._rows(picture))

    def _rows(self, picture: Picture) -> list[RankRow]:
        """What is listed, in its order."""
        status = picture.status
        if status is None:
            return []
        basis = (status, self.filter, self.order)
        if self._listed is None or any(
            old is not new for old, new in zip(self._listed[0], basis, strict=True)
        ):
            wanted = parsed(self.filter)
            rows = status.ranks
            if self.filter:
                rows = [row for row in rows if wanted.admits(_searched(row, picture), row.rank)]
            self._listed = (basis, ordered(rows, self.order, picture))
        return self._listed[1]

    def _at(self, picture: Picture, rows: list[RankRow]) -> int:
        """The line of the selected rank."""
        rank = self.selected(picture)
        if rank is None:
            return 0
        if rank < len(rows) and rows[rank].rank == rank:  # as it is without filter and order
            return rank
        return next((at for at, row in enumerate(rows) if row.rank == rank), 0)

    def selected(self, picture: Picture) -> int | None:
        rank = super().selected(picture)
        if self.filter:
            rows = self._rows(picture)
            if rows and all(row.rank != rank for row in rows):
                return rows[0].rank
        return rank

    def move(self, direction: Direction, picture: Picture, room: Room) -> None:
        rows = self._rows(picture)
        if not rows:
            return
        seen = self.layout(picture, room).seen(room.height)
        page = max(1, seen - 1)
        steps = {"down": 1, "up": -1, "page_down": page, "page_up": -page}
        at = self._at(picture, rows) + steps.get(direction, 0)
        if direction in ("first", "last"):
            at = 0 if direction == "first" else len(rows) - 1
        self.select(rows[max(0, min(len(rows) - 1, at))].rank)


def _searched(row: RankRow, picture: Picture) -> str:
    """What a filter's words are looked for in."""
    return f"{row.host} {picture.mark(row.rank).word} {row.phase} {row.process} {row.ended}"
