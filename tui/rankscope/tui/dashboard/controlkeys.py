"""The keys that command the run, and what is heard of commands."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from rankscope.protocol.shapes import Shape
from rankscope.tui.asking import author
from rankscope.tui.dashboard.control import Control, told
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.source import Source
from rankscope.tui.feed.commander import Commander, Word


class ControlKeys:
    """For the app: one method for each of ``CONTROL_ACTIONS``."""

    if TYPE_CHECKING:
        _picture: Picture
        _notice: str
        _unlocked: bool
        _hear: Callable[[Word], None]

        def _moved(self, notice: str = "") -> None: ...
        def draw(self) -> None: ...

    _control: Control
    _commander: Commander | None = None
    _view_behind: Shape | None = None
    """The view that the screen behind a question had."""

    def action_unlock(self) -> None:
        self._ask(self._control.toggle(self._picture))

    def action_command(self, name: str) -> None:
        self._ask(self._control.ask(name, self._picture))

    def _ask(self, notice: str) -> None:
        """Show the question that was just put, or why there is none."""
        self._view_behind = self._picture.snapshot.view
        self._moved(notice)

    def _answer(self, key: str) -> None:
        command = self._control.answer(key)
        if command and self._commander is not None:
            self._notice = told(Word(command, "sent", ""))
            self._commander.give(command, self._hear)
        if command is not None:
            self._moved(self._notice if command else "")

    def _on_word(self, word: Word) -> None:
        """News of a command that was given."""
        self._notice = told(word)
        self.draw()

    def _take_control(self, source: Source | None) -> Control:
        if self._commander is not None:
            self._commander.stop()
        operator = None if source is None or source.readonly else source.operator
        self._commander = None if operator is None else Commander(operator, author())
        why = Source.why_not if source is None else source.why_not
        return Control(allowed=operator is not None, why_not=why, unlocked=self._unlocked)
