"""The table of ranks, one line each."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.protocol.shapes import RankRow, Status
from rankscope.tui.dashboard.filtering import parsed
from rankscope.tui.dashboard.ordering import ORDERS, following, ordered
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.age import word_age_s
from rankscope.tui.dashboard.render.grid import TONE_STYLES
from rankscope.tui.dashboard.render.line import Line, Span, StyleName, fit, line
from rankscope.tui.dashboard.render.table import Column, columns_that_fit, head_line, row_line
from rankscope.tui.dashboard.screens.base import Direction, Layout, Room, head_lines
from rankscope.tui.dashboard.screens.selecting import SelectingScreen
from rankscope.tui.feed.merge import as_came
from rankscope.tui.words import numbers, tokens
from rankscope.tui.words.counting import step_of
from rankscope.tui.words.marks import Mark, rank_mark

AGES = ("for", "heard")
"""Of a run that is over they would tell how long the hub went on."""


def _heard(row: RankRow, older_s: float) -> str:
    return numbers.age(None if row.heard_s is None else row.heard_s + older_s)


def _age_style(row: RankRow) -> StyleName:
    """Silence is worth a look from a few seconds on; ranks speak twice a second."""
    return "warn" if row.heard_s is not None and row.heard_s > 3 and row.phase != "ended" else ""


def columns(picture: Picture, older_s: float = 0.0) -> list[Column[RankRow]]:
    """The most telling first: a narrow terminal drops them from the right.

    ``older_s``: for how long no hub has said anything.
    """
    number = max(4, len(str(picture.highest_rank)))

    host = max(4, min(10, picture.longest_host))

    def mark(row: RankRow) -> Mark:
        return picture.marks.get(row.rank) or rank_mark(row)

    state = "running" if picture.status is None else picture.status.state

    def speed(row: RankRow) -> str:
        current = picture.ended or (tokens.is_current(row, state) and not picture.unknown)
        return numbers.si(row.tokens_per_s) if current else numbers.DASH

    def tone(row: RankRow) -> StyleName:
        return TONE_STYLES[mark(row).tone]

    return [
        Column("rank", number, lambda row: Span(str(row.rank), "strong")),
        Column("", 1, lambda row: Span(mark(row).glyph, tone(row)), to_right=False),
        Column("state", 9, lambda row: Span(mark(row).word, tone(row)), to_right=False),
        Column("in step", 7, lambda row: Span(numbers.count(step_of(row)))),
        Column("phase", 9, lambda row: Span(row.phase), to_right=False),
        Column("for", 7, lambda row: Span(numbers.age(row.phase_s))),
        Column("a step", 7, lambda row: Span(numbers.span(row.step_s))),
        Column("host", host, lambda row: Span(row.host, "dim"), to_right=False),
        Column(
            "pid", 7, lambda row: Span(numbers.DASH if row.pid is None else str(row.pid), "dim")
        ),
        Column("peak", 7, lambda row: Span(numbers.size_bytes(row.memory_peak_bytes))),
        Column("loss", 7, lambda row: Span(numbers.loss(row.loss))),
        Column("‖g‖", 7, lambda row: Span(numbers.norm(row.grad_norm))),
        Column("heard", 7, lambda row: Span(_heard(row, older_s), _age_style(row))),
        Column("tok/s", 7, lambda row: Span(speed(row))),
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


LARGE = 2048
LARGE_EVERY_S = 1.0
BY_AGE = ("for", "heard")


@dataclass(frozen=True)
class Listed:
    """What was found last: for which filter, order and size, in which status, and when."""

    wanted: tuple[str, str, int]
    status: Status
    at_t_s: float
    places: Sequence[int]


class RanksScreen(SelectingScreen):
    name = "ranks"

    def __init__(self) -> None:
        super().__init__()
        self._follow = True
        self.order = ORDERS[0]
        self._listed: Listed | None = None
        self._now_t_s = 0.0

    def layout(self, picture: Picture, room: Room) -> Layout:
        top = head_lines(picture, room, brief=room.height < 30)
        if picture.status is None:
            return self.finish(picture, room, top, 0, lambda y: ())
        self._now_t_s = room.now_t_s
        places = self._places(picture)
        rows = picture.status.ranks
        unknown = picture.unknown
        shown = columns(picture, word_age_s(picture, room.now_t_s) if unknown else 0.0)
        if picture.ended or unknown or picture.snapshot.replay:
            # When a rank was heard last is true of one that nobody hears any more, too.
            left_out = ("for",) if unknown else AGES
            shown = [column for column in shown if column.head not in left_out]
        kept = columns_that_fit(shown, room.width - 4, grow="host")
        top.append(fit(line("   ", *head_line(kept)), room.width))
        at = self._at(picture, places)

        def line_at(y: int) -> Line:
            cells = row_line(kept, rows[places[y]])
            if y != at:
                return fit(line("   ", *cells), room.width)
            text = "".join(span.text for span in cells)
            return fit(line(" ", Span(f"▸ {text}", "cursor")), room.width)

        show = at if self._follow else None
        order = "" if self.order == ORDERS[0] else self.order
        return self.finish(
            picture, room, top, len(places), line_at, None, show, filtered=True, order=order
        )

    def sort(self) -> str:
        """Go over to the next order; what it is called."""
        self.order = following(self.order)
        return self.order

    def find(self, step: int, picture: Picture, room: Room) -> bool:
        if step:
            self.move("down" if step > 0 else "up", picture, room)
        return bool(self._places(picture))

    def _places(self, picture: Picture) -> Sequence[int]:
        """Which rows are listed, in their order, by their place among all.

        In a large world they are looked through anew once a second at most.
        """
        status = picture.status
        if status is None:
            return ()
        size = len(status.ranks)
        if not self.filter and self.order == ORDERS[0]:
            return range(size)
        wanted = (self.filter, self.order, size)
        known = self._listed
        if known is not None and known.wanted == wanted:
            waits_s = LARGE_EVERY_S if size >= LARGE else 0.0
            if known.status is status or self._now_t_s - known.at_t_s < waits_s:
                return known.places
        by_age = self.order in BY_AGE
        rows = list(status.ranks) if by_age else as_came(status.ranks)
        chosen: Sequence[int] = range(size)
        if self.filter:
            words = parsed(self.filter)
            chosen = [
                at for at in chosen if words.admits(_searched(rows[at], picture), rows[at].rank)
            ]
        places = ordered(rows, chosen, self.order, picture)
        self._listed = Listed(wanted, status, self._now_t_s, places)
        return places

    def _at(self, picture: Picture, places: Sequence[int]) -> int:
        """The line of the selected rank."""
        rank = self.selected(picture)
        place = self._place_of(rank, picture)
        if place is None or isinstance(places, range):
            return place or 0
        return places.index(place) if place in places else 0

    @staticmethod
    def _place_of(rank: int | None, picture: Picture) -> int | None:
        """Where the row of ``rank`` is among all."""
        if rank is None or picture.status is None:
            return None
        rows = as_came(picture.status.ranks)
        at = bisect_left(rows, rank, key=lambda row: row.rank)
        return at if at < len(rows) and rows[at].rank == rank else None

    def selected(self, picture: Picture) -> int | None:
        rank = super().selected(picture)
        if self.filter and picture.status is not None:
            places = self._places(picture)
            if places and self._place_of(rank, picture) not in places:
                return picture.status.ranks[places[0]].rank
        return rank

    def move(self, direction: Direction, picture: Picture, room: Room) -> None:
        places = self._places(picture)
        if not places or picture.status is None:
            return
        seen = self.layout(picture, room).seen(room.height)
        page = max(1, seen - 1)
        steps = {"down": 1, "up": -1, "page_down": page, "page_up": -page}
        at = self._at(picture, places) + steps.get(direction, 0)
        if direction in ("first", "last"):
            at = 0 if direction == "first" else len(places) - 1
        self.select(picture.status.ranks[places[max(0, min(len(places) - 1, at))]].rank)


def _searched(row: RankRow, picture: Picture) -> str:
    """What a filter's words are looked for in."""
    return f"{row.host} {picture.mark(row.rank).word} {row.phase} {row.process} {row.ended}"
