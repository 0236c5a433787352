"""The newest steps: loss, step time and phases over them, and each rank's pace at each."""

from rankscope.protocol.shapes import StepsRow, StepsView
from rankscope.tui.dashboard.filtering import parsed
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.cut import cut
from rankscope.tui.dashboard.render.findings import field_lines
from rankscope.tui.dashboard.render.line import BLANK, Line, Span, line, rule
from rankscope.tui.dashboard.render.steps import (
    course_lines,
    heat_head,
    heat_line,
    legend_line,
    own_lines,
    pace_mark,
    phase_lines,
)
from rankscope.tui.dashboard.screens.base import Direction, Layout, Room, head_lines
from rankscope.tui.dashboard.screens.selecting import SelectingScreen
from rankscope.tui.feed.poller import Wanted
from rankscope.tui.words import steps as words

TALL = 36
"""From this height on the selected rank's own phases are shown, too."""
HIGH = 28
"""From this height on there is room for more evidence."""
LOW = 20
"""Below this height the phases give way to the ranks."""


class StepsScreen(SelectingScreen):
    name = "steps"

    def __init__(self) -> None:
        super().__init__()
        self._follow = True

    def view_wanted(self, picture: Picture) -> Wanted | None:
        return Wanted("steps", self.selected(picture))

    def selected(self, picture: Picture) -> int | None:
        chosen = super().selected(picture)
        rows = self._rows(picture)
        if rows and (self._cursor is None or all(row.rank != chosen for row in rows)):
            return rows[0].rank
        return chosen

    def layout(self, picture: Picture, room: Room) -> Layout:
        top = head_lines(picture, room, brief=True)
        view = self._view(picture)
        if view is None:
            return self.finish(picture, room, top, 0, lambda y: ())
        if not view.steps:
            top.append(line("  ", Span("no step completed yet", "dim")))
            return self.finish(picture, room, top, 0, lambda y: ())
        rows = self._rows(picture)
        rank = self.selected(picture)
        at = next((y for y, row in enumerate(rows) if row.rank == rank), 0)
        tall = room.height >= TALL
        evidence = field_lines(view.findings, picture, room.width)
        if evidence:
            most = 9 if tall else 4 if room.height >= HIGH else 2
            top += [*cut(evidence[:-1], most, room.width, "v shows them"), BLANK]
        top += course_lines(view, room.width)
        if room.height >= LOW:
            top += phase_lines(view, room.width)
        top += [rule(room.width), heat_head(view, room.width)]
        below: list[Line] = [legend_line(view, room.width)]
        if tall and rank is not None:
            below += own_lines(view, rank, room.width)

        def line_at(y: int) -> Line:
            if y >= len(rows):
                return below[y - len(rows)]
            of_rank = pace_mark(picture, rows[y].rank)
            return heat_line(rows[y], view, room.width, of_rank, selected=y == at)

        show = at if self._follow else None
        if len(top) + len(rows) + len(below) < room.height:  # all in one, without a gap
            count = len(rows) + len(below)
            return self.finish(picture, room, top, count, line_at, None, show, filtered=True)
        return self.finish(picture, room, top, len(rows), line_at, below, show, filtered=True)

    def move(self, direction: Direction, picture: Picture, room: Room) -> None:
        rows = self._rows(picture)
        if not rows:
            return
        rank = self.selected(picture)
        at = next((y for y, row in enumerate(rows) if row.rank == rank), 0)
        page = max(1, self.layout(picture, room).seen(room.height) - 1)
        steps = {"down": 1, "up": -1, "right": 1, "left": -1, "page_down": page, "page_up": -page}
        at += steps.get(direction, 0)
        if direction in ("first", "last"):
            at = 0 if direction == "first" else len(rows) - 1
        self.select(rows[max(0, min(len(rows) - 1, at))].rank)

    def find(self, step: int, picture: Picture, room: Room) -> bool:
        if step:
            self.move("down" if step > 0 else "up", picture, room)
        return bool(self._rows(picture))

    def _rows(self, picture: Picture) -> list[StepsRow]:
        view = self._view(picture)
        if view is None:
            return []
        rows = words.by_lateness(view, picture.marks)
        if not self.filter:
            return rows
        wanted = parsed(self.filter)

        def searched(row: StepsRow) -> str:
            return f"{row.host} {words.mark_of(row, pace_mark(picture, row.rank)).word}"

        return [row for row in rows if wanted.admits(searched(row), row.rank)]

    @staticmethod
    def _view(picture: Picture) -> StepsView | None:
        view = picture.snapshot.view
        return view if isinstance(view, StepsView) else None
