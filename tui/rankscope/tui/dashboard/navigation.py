"""Which screen is shown, and the way back."""

from rankscope.tui.dashboard.action import BASES, ScreenName
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.runwatch import RunWatch
from rankscope.tui.dashboard.screens.base import Screen
from rankscope.tui.dashboard.screens.overview import OverviewScreen


class Navigation:
    """A stack of screens; the bottom one is never left."""

    def __init__(self, runs: RunWatch | None = None) -> None:
        self._runs = runs or RunWatch()
        self._kept: dict[ScreenName, Screen] = {"overview": OverviewScreen()}
        self._stack: list[Screen] = [self._kept["overview"]]

    @property
    def screen(self) -> Screen:
        return self._stack[-1]

    def go(self, name: ScreenName) -> None:
        """Show the screen ``name``; again when it is shown already, goes back."""
        if name == self.screen.name and name not in BASES:
            self.go_back()
            return
        if name not in self._kept:
            self._kept[name] = _make(name, self._runs)
        screen = self._kept[name]
        if name in BASES:
            home = self._kept["overview"]
            self._stack = [home] if screen is home else [home, screen]
        else:
            self._stack = [each for each in self._stack if each is not screen] + [screen]

    def turn(self, step: int) -> None:
        """Show the screen whose digit is ``step`` further, around."""
        here = next((each.name for each in reversed(self._stack) if each.name in BASES), BASES[0])
        self.go(BASES[(BASES.index(here) + step) % len(BASES)])

    def open(self, rank: int) -> None:
        """Show the page of ``rank``; on one already, turn to it."""
        from rankscope.tui.dashboard.screens.rank import RankScreen

        if self.screen.name == "rank":
            self.screen.select(rank)
        else:
            self._stack = [each for each in self._stack if each.name != "rank"]
            self._stack.append(RankScreen(rank))

    def go_back(self) -> None:
        if len(self._stack) > 1:
            left = self._stack.pop()
            wanted = left.rank_wanted()
            if wanted is not None:
                self.screen.select(wanted)

    def trouble(self, picture: Picture) -> bool:
        """Select the next rank that is not well, after the selected one and around.

        With none selected by hand yet that is the one to blame. False: all are well.
        """
        order = picture.order
        bad = [rank for rank in order if picture.mark(rank).tone in ("bad", "warn")]
        if not bad:
            return False
        now = self.screen.chosen()
        after = [picture.worst_rank] if picture.worst_rank in bad else bad
        if now is not None and now in order:
            at = order.index(now)
            place = {rank: index for index, rank in enumerate(order)}
            after = [rank for rank in bad if place[rank] > at] + [r for r in bad if place[r] <= at]
        self.screen.select(after[0])
        return True


def _make(name: ScreenName, runs: RunWatch) -> Screen:
    """Screens are made, and their code is loaded, when they are first looked at."""
    match name:
        case "ranks":
            from rankscope.tui.dashboard.screens.ranks import RanksScreen

            return RanksScreen()
        case "numerics":
            from rankscope.tui.dashboard.screens.numerics import NumericsScreen

            return NumericsScreen()
        case "collectives":
            from rankscope.tui.dashboard.screens.collectives import CollectivesScreen

            return CollectivesScreen()
        case "memory":
            from rankscope.tui.dashboard.screens.memory import MemoryScreen

            return MemoryScreen()
        case "steps":
            from rankscope.tui.dashboard.screens.steps import StepsScreen

            return StepsScreen()
        case "incidents":
            from rankscope.tui.dashboard.screens.incidents import IncidentsScreen

            return IncidentsScreen()
        case "checkpoints":
            from rankscope.tui.dashboard.screens.checkpoints import CheckpointsScreen

            return CheckpointsScreen()
        case "runs":
            from rankscope.tui.dashboard.screens.runs import RunsScreen

            return RunsScreen(runs)
        case "stacks":
            from rankscope.tui.dashboard.screens.stacks import StacksScreen

            return StacksScreen()
        case "evidence":
            from rankscope.tui.dashboard.screens.evidence import EvidenceScreen

            return EvidenceScreen()
        case "help":
            from rankscope.tui.dashboard.screens.help import HelpScreen

            return HelpScreen()
        case _:
            return OverviewScreen()
