"""The keys that search, order, take away and change the look."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.tui.dashboard.keeping import verdict_text, whole_screen, write_text
from rankscope.tui.dashboard.navigation import Navigation
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.screens.base import Room
from rankscope.tui.dashboard.screens.ranks import RanksScreen
from rankscope.tui.dashboard.typed import Typed
from rankscope.tui.dashboard.widgets.canvas import Canvas
from rankscope.tui.dashboard.widgets.theme_filter import THEMES, Theme, following


class ToolKeys:
    """For the app: one method for each such action of the registry."""

    if TYPE_CHECKING:
        _picture: Picture
        _navigation: Navigation
        _notice: str
        _canvas: Canvas

        def _moved(self, notice: str = "") -> None: ...
        def _room(self) -> Room: ...
        def draw(self) -> None: ...
        def action_redraw(self) -> None: ...
        def copy_to_clipboard(self, text: str) -> None: ...
        def _not_given(self) -> bool: ...

    _typed: Typed | None = None
    """The filter that is being typed."""
    _look: Theme = "colour"

    def action_filter(self) -> None:
        if not self._navigation.screen.filterable:
            self._navigation.go("ranks")
        self._typed = Typed(self._navigation.screen.filter)
        self._moved()

    def action_find(self, step: int) -> None:
        screen = self._navigation.screen
        if not screen.filter:
            self._moved("no filter: / begins one")
        else:
            found = screen.find(step, self._picture, self._room())
            self._moved("" if found else "nothing matches")

    def action_sort(self) -> None:
        screen = self._navigation.screen
        if isinstance(screen, RanksScreen):
            screen.sort()
            self._moved()
        else:
            self._moved("only the table of ranks (2) can be sorted")

    def _filter_changed(self, text: str, *, settled: bool = False) -> None:
        screen = self._navigation.screen
        screen.filter = text
        if settled and text and not screen.find(0, self._picture, self._room()):
            self._notice = "nothing matches"
        self.draw()

    def action_copy(self) -> None:
        if self._not_given():
            return
        text = self._navigation.screen.copied(self._picture)
        what = "its name was" if text is not None else "the verdict with its evidence was"
        self.copy_to_clipboard(text or verdict_text(self._picture, time.monotonic()))
        # Whether the terminal takes it cannot be asked; many are told not to.
        self._moved(
            f"{what} sent to the terminal's clipboard (OSC 52); if it is not there: "
            f"w writes the screen to a file in {Path.cwd()}"
        )

    def action_write_screen(self) -> None:
        screen = self._navigation.screen
        text = whole_screen(screen, self._picture, self._room())
        status = self._picture.status
        run = self._picture.title if status is None else status.run
        try:
            path = write_text(text, run, screen.name, time.time())
        except OSError as error:
            self._moved(f"cannot write: {error}")
        else:
            self._moved(f"written to {path}")

    def action_theme(self) -> None:
        self._look = following(self._look)
        self._canvas.look(colour=self._look != "plain", dim=self._look != "strong")
        self.action_redraw()
        self._moved(THEMES[self._look])
