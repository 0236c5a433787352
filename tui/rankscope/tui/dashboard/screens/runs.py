"""All runs on this machine; Enter opens one."""

import time
from collections.abc import Callable, Sequence

from rankscope.tui.dashboard.filtering import parsed
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import Line, Span, fit, line, rule
from rankscope.tui.dashboard.render.runs import detail_lines, head_line, run_line
from rankscope.tui.dashboard.runwatch import RunWatch
from rankscope.tui.dashboard.screens.base import Layout, Room, head_lines
from rankscope.tui.dashboard.screens.listing import ListingScreen
from rankscope.tui.runs import ListedRun
from rankscope.tui.words import runs as words


class RunsScreen(ListingScreen):
    name = "runs"

    def __init__(self, watch: RunWatch, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._watch = watch
        self._clock = clock

    def names(self, picture: Picture) -> Sequence[str]:
        return [run.path for run in self._runs()]

    def opens(self, picture: Picture) -> str | None:
        runs = self._runs()
        return runs[self.at(self.names(picture))].path if runs else None

    def copied(self, picture: Picture) -> str | None:
        runs = self._runs()
        return runs[self.at(self.names(picture))].run if runs else None

    def layout(self, picture: Picture, room: Room) -> Layout:
        self._watch.wanted()
        top = head_lines(picture, room, brief=True)
        runs = self._runs()
        here = "" if picture.status is None else picture.status.run
        if not runs:
            known = self._watch.latest
            text = "looking for runs …" if known is None else "no run on this machine"
            if known:
                text = "no run matches"
            top.append(fit(line("  ", Span(self._watch.error or text, "dim")), room.width))
            return self.finish(picture, room, top, 0, lambda y: (), filtered=True)
        top.append(head_line(runs, room.width))
        at, now_s = self.at(self.names(picture)), self._clock()

        def line_at(y: int) -> Line:
            run = runs[y]
            return run_line(run, runs, now_s, room.width, selected=y == at, here=run.run == here)

        below: list[Line] = []
        if room.height >= 16:
            below = [rule(room.width), *detail_lines(runs[at], room.width)]
        return self.finish(picture, room, top, len(runs), line_at, below, at, filtered=True)

    def _runs(self) -> Sequence[ListedRun]:
        runs = self._watch.latest or ()
        if not self.filter:
            return runs
        wanted = parsed(self.filter)
        return [
            run
            for run in runs
            if wanted.admits(f"{run.run} {run.state} {run.name} {words.verdict(run).word}")
        ]
