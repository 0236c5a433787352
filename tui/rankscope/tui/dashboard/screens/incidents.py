"""The incident log: what was found, when it opened and closed, and what was known then."""

from collections.abc import Sequence

from rankscope.protocol.shapes import SEVERITIES, Incidents
from rankscope.tui.dashboard.filtering import parsed
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.incidents import detail_lines, entry_line, head_line
from rankscope.tui.dashboard.render.line import Line, Span, line, rule
from rankscope.tui.dashboard.screens.base import Layout, Room, head_lines
from rankscope.tui.dashboard.screens.listing import ListingScreen
from rankscope.tui.feed.poller import Wanted
from rankscope.tui.words.incidents import Entry, entries, searched

DETAILS = 7
"""Lines for the selected one, on a screen of ordinary height."""
TALL_DETAILS = 14
TALL = 36


class IncidentsScreen(ListingScreen):
    name = "incidents"
    why_nothing_opens = "no rank is to blame here, so none is opened: 2 lists them all"

    def __init__(self) -> None:
        super().__init__()
        self._made: tuple[Incidents, str, list[Entry]] | None = None

    def view_wanted(self, picture: Picture) -> Wanted | None:
        return Wanted("incidents")

    def selected(self, picture: Picture) -> int | None:
        """The first culprit of the selected one."""
        shown = self._entries(picture)
        if not shown:
            return None
        ranks = shown[self.at(self.names(picture))].newest.finding.ranks
        return ranks[0] if ranks else None

    def at(self, names: Sequence[str]) -> int:
        """Until one is selected by hand, the gravest that is open: what the verdict is about."""
        if self._chosen in names:
            return super().at(names)
        shown = {} if self._made is None else {one.newest.id: one for one in self._made[2]}
        grave = [shown[each] for each in names if each in shown and shown[each].closed_s is None]
        worst = max(
            reversed(grave),
            key=lambda one: SEVERITIES.index(one.newest.finding.severity),
            default=None,
        )
        return 0 if worst is None else names.index(worst.newest.id)

    def names(self, picture: Picture) -> Sequence[str]:
        return [entry.newest.id for entry in self._entries(picture)]

    def layout(self, picture: Picture, room: Room) -> Layout:
        top = head_lines(picture, room, brief=True)
        if self._view(picture) is None:
            return self.finish(picture, room, top, 0, lambda y: ())
        shown = self._entries(picture)
        if not shown:
            text = "no incident matches" if self.filter else "no incident so far"
            top.append(line("  ", Span(text, "dim")))
            return self.finish(picture, room, top, 0, lambda y: (), filtered=True)
        top.append(head_line(room.width))
        at = self.at(self.names(picture))
        now_s = picture.snapshot.hub_s
        overview = picture.overview
        if picture.ended and overview is not None:
            now_s = overview.ended_s
        below: list[Line] = []
        if room.height >= 20:
            most = TALL_DETAILS if room.height >= TALL else DETAILS
            most = max(most, room.height - len(top) - len(shown) - 2)  # a short log leaves room
            below = [rule(room.width), *detail_lines(shown[at], picture, now_s, room.width, most)]

        def line_at(y: int) -> Line:
            return entry_line(shown[y], now_s, room.width, selected=y == at)

        return self.finish(picture, room, top, len(shown), line_at, below, at, filtered=True)

    def _entries(self, picture: Picture) -> list[Entry]:
        view = self._view(picture)
        if view is None:
            return []
        if self._made is None or self._made[0] is not view or self._made[1] != self.filter:
            wanted = parsed(self.filter)
            shown = [
                entry
                for entry in entries(view)
                if not self.filter or wanted.admits(searched(entry))
            ]
            self._made = (view, self.filter, shown)
        return self._made[2]

    @staticmethod
    def _view(picture: Picture) -> Incidents | None:
        view = picture.snapshot.view
        return view if isinstance(view, Incidents) else None
