"""The first screen: is it well, how fast is it, where is each rank, what is the last checkpoint."""

from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.bottom import state_line
from rankscope.tui.dashboard.render.grid import Plan, grid_line, plan, tally
from rankscope.tui.dashboard.render.line import Line, Span, fit, join, line, rule, width_of
from rankscope.tui.dashboard.render.nodes import fleet, node_details, notes
from rankscope.tui.dashboard.render.numbers import number_lines
from rankscope.tui.dashboard.screens.base import Direction, Layout, Room, Screen, head_lines

TALLY_FROM = 9
"""With fewer ranks than this everyone is seen at a glance and need not be counted."""
DETAILS_GAP = 3


class OverviewScreen(Screen):
    name = "overview"

    def __init__(self) -> None:
        super().__init__()
        self._cursor: int | None = None
        self._plan: Plan | None = None
        self._follow = False

    def layout(self, picture: Picture, room: Room) -> Layout:
        top = head_lines(picture, room, brief=False)
        if picture.status is None:
            return self.finish(picture, room, top, 0, lambda y: ())
        top += [*number_lines(picture.overview, room.width), rule(room.width)]
        bottom = [rule(room.width), state_line(picture, room.width)]
        grid = self._grid(picture, room, len(top) + len(bottom) + 1)
        if len(picture.order) >= TALLY_FROM:
            top.append(fit(line("  ", *tally(picture)), room.width))
        if grid.kind != "spelled":
            top.append(fit(line("  ", *fleet(picture)), room.width))
        nodes = {} if picture.overview is None else {n.host: n for n in picture.overview.nodes}
        remarks = notes(picture.overview)

        def line_at(y: int) -> Line:
            if y >= len(grid.rows):
                return fit(line("  ", Span(remarks[y - len(grid.rows)], "dim")), room.width)
            cells = line(" ", *grid_line(grid, y, picture, self._cursor))
            host = grid.rows[y].host
            if grid.kind != "spelled" or host is None or host not in nodes:
                return fit(cells, room.width)
            gap = grid.end + 1 + DETAILS_GAP - width_of(cells)
            details = node_details(nodes[host], picture, room.width - grid.end - 2 - DETAILS_GAP)
            return fit(join([cells, details], " " * gap), room.width)

        show = grid.row_of(self._cursor) if self._follow and self._cursor is not None else None
        self._follow = False
        count = len(grid.rows) + len(remarks)
        return self.finish(picture, room, top, count, line_at, bottom, show)

    def _grid(self, picture: Picture, room: Room, around: int) -> Plan:
        self._plan = plan(picture.nodes, room.width - 1, max(1, room.height - around - 2))
        return self._plan

    def move(self, direction: Direction, picture: Picture, room: Room) -> None:
        order = picture.order
        if self._plan is None or not order:
            return
        self._follow = True
        if self._cursor is None or self._cursor not in order:
            # The first press shows where one is; it does not yet move.
            self._cursor = order[-1] if direction == "last" else self.selected(picture)
            return
        page = max(1, room.height // 2)
        match direction:
            case "left" | "right":
                at = order.index(self._cursor) + (1 if direction == "right" else -1)
                self._cursor = order[max(0, min(len(order) - 1, at))]
            case "first":
                self._cursor = order[0]
            case "last":
                self._cursor = order[-1]
            case _:
                lines = {"down": 1, "up": -1, "page_down": page, "page_up": -page}[direction]
                self._cursor = self._plan.above_or_below(self._cursor, lines)

    def selected(self, picture: Picture) -> int | None:
        if self._cursor is not None:
            return self._cursor
        if picture.worst_rank is not None:
            return picture.worst_rank
        return picture.order[0] if picture.order else None

    def select(self, rank: int) -> None:
        self._cursor = rank
        self._follow = True
