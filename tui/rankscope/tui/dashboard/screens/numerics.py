"""Gradients before reduction: where a NaN came from, ranks over time, one rank's parameters."""

from rankscope.protocol.shapes import Numerics
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import Line
from rankscope.tui.dashboard.render.numerics import (
    course_width,
    origin_lines,
    parameter_lines,
    rank_head,
    rank_line,
    summary_lines,
)
from rankscope.tui.dashboard.screens.base import Direction, Layout, Room, head_lines
from rankscope.tui.dashboard.screens.selecting import SelectingScreen
from rankscope.tui.feed.poller import Wanted
from rankscope.tui.words import numerics as words

PARAMETERS_BELOW = 8
"""Lines for the selected rank's parameters, on a screen with room for them."""

HIGH = 30


class NumericsScreen(SelectingScreen):
    name = "numerics"

    def __init__(self) -> None:
        super().__init__()
        self._follow = True

    def view_wanted(self, picture: Picture) -> Wanted | None:
        return Wanted("numerics", self.selected(picture))

    def selected(self, picture: Picture) -> int | None:
        chosen = super().selected(picture)
        if self._cursor is None:
            view = self._view(picture)
            for finding in view.findings if view is not None else []:
                if finding.ranks:
                    return finding.ranks[0]
        return chosen

    def layout(self, picture: Picture, room: Room) -> Layout:
        top = head_lines(picture, room, brief=room.height < HIGH)
        view = self._view(picture)
        if view is None:
            return self.finish(picture, room, top, 0, lambda y: ())
        rank = self.selected(picture)
        rows = words.by_trouble(view)
        ranks = [row.rank for row in rows]
        at = ranks.index(rank) if rank in ranks else 0
        tall = room.height >= HIGH
        below_most = PARAMETERS_BELOW if tall else 4
        spare = room.height - len(top) - len(rows) - below_most - (12 if tall else 4) - 4
        top += origin_lines(view, picture, room.width, (12 if tall else 4) + max(0, spare))
        top += [*summary_lines(view, room.width), rank_head(view, room.width)]
        marks, between = words.marks_of(view), words.span(view)
        cells = course_width(view, room.width)
        below: list[Line] = []
        if rank is not None:
            spare = room.height - len(top) - len(rows) - below_most - 1
            below = parameter_lines(view, rank, picture, room.width, below_most + max(0, spare))

        def line_at(y: int) -> Line:
            row = rows[y]
            course = words.course(row.norms, cells, between)
            return rank_line(row, marks[row.rank], course, room.width, selected=y == at)

        show = at if self._follow else None
        return self.finish(picture, room, top, len(rows), line_at, below, show)

    def move(self, direction: Direction, picture: Picture, room: Room) -> None:
        view = self._view(picture)
        if view is None or not view.ranks:
            return
        ranks = [row.rank for row in words.by_trouble(view)]
        rank = self.selected(picture)
        at = ranks.index(rank) if rank in ranks else 0
        page = max(1, self.layout(picture, room).seen(room.height) - 1)
        steps = {"down": 1, "up": -1, "right": 1, "left": -1, "page_down": page, "page_up": -page}
        at += steps.get(direction, 0)
        if direction in ("first", "last"):
            at = 0 if direction == "first" else len(ranks) - 1
        self.select(ranks[max(0, min(len(ranks) - 1, at))])

    @staticmethod
    def _view(picture: Picture) -> Numerics | None:
        view = picture.snapshot.view
        return view if isinstance(view, Numerics) else None
