"""The first screen: is it well, how fast is it, where is each rank, what is the last checkpoint."""

from rankscope.protocol.shapes import StepsView
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.bottom import hub_lines, state_line
from rankscope.tui.dashboard.render.evidence import short_evidence, stall_lines
from rankscope.tui.dashboard.render.grid import Plan, grid_line, plan, tally
from rankscope.tui.dashboard.render.line import BLANK, Line, Span, fit, join, line, rule, width_of
from rankscope.tui.dashboard.render.nodes import fleet, node_details, notes
from rankscope.tui.dashboard.render.numbers import number_lines
from rankscope.tui.dashboard.render.steps import heat_head, heat_line, legend_line, pace_mark
from rankscope.tui.dashboard.screens.base import Direction, Layout, Room, head_lines
from rankscope.tui.dashboard.screens.selecting import SelectingScreen
from rankscope.tui.feed.poller import Wanted
from rankscope.tui.words.stall import unexplained
from rankscope.tui.words.steps import by_lateness

TALLY_FROM = 9
"""With fewer ranks than this everyone is seen at a glance and need not be counted."""
DETAILS_GAP = 3
TALL = 36
"""From this height on there is room for charts instead of sparklines, and for the ranks' pace."""
PACE_RANKS = 64
"""Of so many ranks at most the pace is shown, below them."""
PACE_LINES = 5
"""Less room than this is left free."""


class OverviewScreen(SelectingScreen):
    name = "overview"
    filterable = False

    def __init__(self) -> None:
        super().__init__()
        self._plan: Plan | None = None
        self._roomy = False

    def view_wanted(self, picture: Picture) -> Wanted | None:
        """The ranks' pace over the newest steps, where there is room for it."""
        return Wanted("steps") if self._roomy else None

    def layout(self, picture: Picture, room: Room) -> Layout:
        top = head_lines(picture, room, brief=False)
        if picture.status is None:
            return self.finish(picture, room, top, 0, lambda y: ())
        top += [
            *number_lines(picture.overview, room.width, 5 if room.height >= TALL else 1),
            rule(room.width),
        ]
        bottom = [
            rule(room.width),
            *hub_lines(picture, room.width),
            state_line(picture, room.width),
        ]
        grid = self._grid(picture, room, len(top) + len(bottom) + 1)
        if len(picture.order) >= TALLY_FROM:
            top.append(fit(line("  ", *tally(picture)), room.width))
        if grid.kind != "spelled":
            top.append(fit(line("  ", *fleet(picture)), room.width))
        nodes = {} if picture.overview is None else {n.host: n for n in picture.overview.nodes}
        below = self._below(picture, room, grid)
        self._roomy = room.height >= TALL and 1 < len(picture.order) <= PACE_RANKS
        free = room.height - len(top) - len(grid.rows) - len(below) - len(bottom) - 1
        below += self._pace(picture, room.width, free)

        def line_at(y: int) -> Line:
            if y >= len(grid.rows):
                return below[y - len(grid.rows)]
            cells = line(" ", *grid_line(grid, y, picture, self._cursor))
            host = grid.rows[y].host
            if grid.kind != "spelled" or host is None or host not in nodes:
                return fit(cells, room.width)
            gap = grid.end + 1 + DETAILS_GAP - width_of(cells)
            details = node_details(nodes[host], picture, room.width - grid.end - 2 - DETAILS_GAP)
            return fit(join([cells, details], " " * gap), room.width)

        show = grid.row_of(self._cursor) if self._follow and self._cursor is not None else None
        self._follow = False
        count = len(grid.rows) + len(below)
        return self.finish(picture, room, top, count, line_at, bottom, show)

    def _below(self, picture: Picture, room: Room, grid: Plan) -> list[Line]:
        """Below the ranks: why readings are missing, and in trouble what the verdict rests on."""
        lines = [fit(line("  ", Span(text, "dim")), room.width) for text in notes(picture.overview)]
        status = picture.status
        if status is not None and grid.kind == "spelled" and unexplained(status):
            return [*lines, BLANK, *stall_lines(status, room.width)]
        verdict = picture.verdict
        if verdict is None or verdict.severity == "info" or grid.kind != "spelled":
            return lines
        others = [each for each in picture.findings if each is not verdict]
        return [*lines, BLANK, *short_evidence(verdict, others, room.width)]

    def _pace(self, picture: Picture, width: int, free: int) -> list[Line]:
        """In ``free`` lines how late each rank was at the newest steps; the latest first."""
        view = picture.snapshot.view
        if not self._roomy or free < PACE_LINES or not isinstance(view, StepsView):
            return []
        if not view.late_steps:
            return []
        rows = by_lateness(view, picture.marks)[: free - 3]
        shown = [
            heat_line(row, view, width, pace_mark(picture, row.rank), selected=False)
            for row in rows
        ]
        return [BLANK, heat_head(view, width), *shown, legend_line(view, width)]

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
        before = self._cursor
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
        if self._cursor == before:
            self._scroll(direction, picture, room)

    def _scroll(self, direction: Direction, picture: Picture, room: Room) -> None:
        """Past the last rank there are more lines, and none to be selected: those are scrolled."""
        self._follow = False
        if direction in ("down", "page_down", "last"):
            super().move(direction, picture, room)
        else:
            self._follow = True
