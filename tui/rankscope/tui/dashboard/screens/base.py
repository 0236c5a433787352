"""What a screen is: lines that stay, lines that scroll, and moving about in them.

A screen owns no widget. It is asked for its lines whenever there is a new picture or another
size; the app draws them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rankscope.protocol.shapes import VIEWS
from rankscope.tui.dashboard.action import ScreenName
from rankscope.tui.dashboard.filtering import Filter, parsed
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.age import faded, faded_below_head
from rankscope.tui.dashboard.render.bottom import footer_line, prompt_line, question_line
from rankscope.tui.dashboard.render.line import Line, Span, fit, line, text_of, width_of, wrap
from rankscope.tui.dashboard.render.timeline import rule_or_timeline
from rankscope.tui.dashboard.render.title import control_lines, title_line
from rankscope.tui.dashboard.render.verdict import verdict_lines
from rankscope.tui.dashboard.screens.offers import LOCKED, offered
from rankscope.tui.feed.poller import Wanted
from rankscope.tui.words import numbers

Direction = Literal["down", "up", "left", "right", "page_down", "page_up", "first", "last"]

ROOMY = 24
"""From this height on a headline may take a line more."""

NOTICE_LINES = 3
"""What takes more than half of the footer is told in lines of its own."""

DIRECTIONS: tuple[Direction, ...] = (
    "down",
    "up",
    "left",
    "right",
    "page_down",
    "page_up",
    "first",
    "last",
)

NO_FURTHER: dict[Direction, str] = {
    "down": "nothing further down",
    "up": "nothing further up",
    "left": "nothing to the left here",
    "right": "nothing to the right here",
    "page_down": "this is the last page",
    "page_up": "this is the first page",
    "first": "this is the first line",
    "last": "this is the last line",
}
"""What is said when a key moved nothing."""


@dataclass(frozen=True)
class Room:
    """The size of the whole terminal and the local monotonic clock."""

    width: int
    height: int
    now_t_s: float
    notice: str = ""
    """What the last key did, or why it did nothing, in a few words."""
    prompt: str | None = None
    """What is being typed, in place of the footer; None when nothing is."""
    rights: str = ""
    """That commands may be given, while they may."""
    locked: str = LOCKED
    """Why commands are not possible from here, or not yet; empty while they are unlocked."""
    may_unlock: bool = True
    """Whether that can be changed from here."""
    question: bool = False
    """Whether something is being asked: then no other key does anything."""


@dataclass(frozen=True)
class Layout:
    """A screen's lines: ``top`` and ``bottom`` stay, ``line_at`` gives those between on demand."""

    top: list[Line]
    count: int
    line_at: Callable[[int], Line]
    bottom: list[Line]
    width: int
    offset: int = 0
    """The first of the scrolling lines that is seen."""

    def seen(self, height: int) -> int:
        """How many scrolling lines can be seen."""
        return max(0, height - len(self.top) - len(self.bottom))

    def lines(self, height: int) -> list[Line]:
        """The whole screen, as a test or a text twin prints it."""
        seen = self.seen(height)
        middle = [
            self.line_at(y) if y < self.count else ()
            for y in range(self.offset, self.offset + seen)
        ]
        return [fit(each, self.width) for each in [*self.top, *middle, *self.bottom][:height]]


class Screen:
    """Base of all screens. ``offset`` is kept here, the layout is made anew each time."""

    name: ScreenName
    filterable: bool = True
    """Whether ``/`` means something here."""
    why_nothing_opens: str = ""
    """What Enter says where nothing is selected; empty for the words of other screens."""

    def __init__(self) -> None:
        self.offset = 0
        self.filter = ""
        """The words of the filter; empty for none."""

    def layout(self, picture: Picture, room: Room) -> Layout:
        raise NotImplementedError

    def move(self, direction: Direction, picture: Picture, room: Room) -> None:
        """Scroll; screens with something selected move that instead."""
        seen = self.layout(picture, room).seen(room.height)
        page = max(1, seen - 1)
        steps = {"down": 1, "up": -1, "page_down": page, "page_up": -page}
        if direction == "first":
            self.offset = 0
        elif direction == "last":
            self.offset = 1 << 30  # the layout brings it back to the last page
        else:
            self.offset = max(0, self.offset + steps.get(direction, 0))

    def selected(self, picture: Picture) -> int | None:
        """The rank that Enter opens."""
        return None

    def chosen(self) -> int | None:
        """The rank that was selected by hand; None while the screen chooses by itself."""
        return None

    def select(self, rank: int) -> None:
        """Make ``rank`` the selected one, where there is such a thing."""

    def find(self, step: int, picture: Picture, room: Room) -> bool:
        """Go to the next line (with ``step`` -1 the one before, with 0 perhaps this one) that the
        filter matches.

        False when there is none. Screens that leave out what does not match move in what is left.
        """
        layout = self.layout(picture, room)
        wanted = parsed(self.filter)
        for distance in range(1 if step else 0, layout.count + 1):
            y = (self.offset + (step or 1) * distance) % layout.count
            if wanted.admits(text_of(layout.line_at(y))):
                self.offset = y
                return True
        return False

    def opens(self, picture: Picture) -> str | None:
        """The run directory that Enter opens, on the screen of runs."""
        return None

    def copied(self, picture: Picture) -> str | None:
        """What ``y`` copies here; None: the verdict."""
        return None

    def rank_wanted(self) -> int | None:
        """The rank whose details this screen shows."""
        return None

    def view_wanted(self, picture: Picture) -> Wanted | None:
        """The view this screen draws beside status and overview."""
        return None

    def finish(
        self,
        picture: Picture,
        room: Room,
        top: list[Line],
        count: int,
        line_at: Callable[[int], Line],
        above_footer: list[Line] | None = None,
        show: int | None = None,
        filtered: bool = False,
        order: str = "",
    ) -> Layout:
        """Put head and footer around the lines, and bring the offset to where it may be.

        ``show`` is a line that must be seen. ``filtered``: what the filter does not admit is left
        out already; else what it matches is marked. ``order``: by what the lines are sorted.
        """
        if not count and self._is_asking(picture):
            asking = self._asking(picture, room.width)
            count, line_at = len(asking), asking.__getitem__
        if picture.unknown:
            top, asked, above = faded_below_head(top), line_at, above_footer or []
            line_at, above_footer = lambda y: faded(asked(y)), [faded(each) for each in above]
        notice = room.notice
        long = room.prompt is None and 2 * width_of(notice) > room.width
        told = wrap(notice, room.width - 4, NOTICE_LINES) if long else []
        notice_lines = [fit(line("  ", Span(each, "warn")), room.width) for each in told]
        bottom = [*(above_footer or []), *notice_lines, ()]
        head = top
        if room.height < len(head) + len(bottom) + 3:  # a very low terminal: the verdict stays
            head = head[: max(2, room.height - len(bottom) - 1)]
        seen = max(1, room.height - len(head) - len(bottom))
        if show is not None:
            self.offset = max(min(self.offset, show), show - seen + 1)
        self.offset = max(0, min(self.offset, count - seen))
        position = f"by {order}" if order else ""
        if count > seen:
            lines_seen = f"{self.offset + 1}-{min(count, self.offset + seen)} of {count}"
            position = ", ".join(filter(None, (lines_seen, position)))
        if self.filter:
            position = f"/{self.filter}  {position or numbers.plural(count, 'line')}"
            if not filtered:
                line_at = marked(line_at, parsed(self.filter))
        if room.question:
            bottom[-1] = question_line(room.width)
        elif room.prompt is None:
            shown = offered(self, picture, room, count)
            bottom[-1] = footer_line(shown, room.width, position if long else notice or position)
        else:
            bottom[-1] = prompt_line(room.prompt, room.width, position)
        return Layout(head, count, line_at, bottom, room.width, self.offset)

    def _asking(self, picture: Picture, width: int) -> list[Line]:
        """That the view is asked for, or why it cannot come."""
        snapshot = picture.snapshot
        text = f"asking the hub for {self.name} …"
        if picture.unknown and not snapshot.replay:  # why stands in the head
            text = f"no hub answers: {self.name} comes when one is back"
        elif snapshot.link == "away":
            text = f"{self.name} cannot be asked for: {snapshot.error}"
        return [line("  ", Span(each, "dim")) for each in wrap(text, width - 4, NOTICE_LINES)]

    def _is_asking(self, picture: Picture) -> bool:
        """Whether the view that this screen draws has not come yet: a key is seen to be taken."""
        wanted = self.view_wanted(picture)
        if wanted is None or picture.status is None:
            return False
        return not isinstance(picture.snapshot.view, VIEWS[wanted.view])


def marked(line_at: Callable[[int], Line], wanted: Filter) -> Callable[[int], Line]:
    """The same lines, those that ``wanted`` matches in one style."""

    def line_marked(y: int) -> Line:
        plain = line_at(y)
        text = text_of(plain)
        return line(Span(text, "cursor")) if text.strip() and wanted.admits(text) else plain

    return line_marked


def head_lines(picture: Picture, room: Room, *, brief: bool) -> list[Line]:
    """Title, verdict and a rule: they head every screen."""
    return [
        title_line(picture, room.width, room.now_t_s, room.rights),
        *verdict_lines(
            picture, room.width, room.now_t_s, brief=brief, most=3 if room.height >= ROOMY else 2
        ),
        *control_lines(picture, room.width),
        rule_or_timeline(picture, room.width),
    ]
