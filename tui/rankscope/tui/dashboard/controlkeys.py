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
    _refusal: str = ""
    """The notice that a command was refused, as long as no other key was taken."""
    _saved: tuple[str, int] | None = None
    """The notice of a save that is over, and its step."""
    _view_behind: Shape | None = None
    """The view that the screen behind a question had."""

    def action_unlock(self) -> None:
        self._ask(self._control.toggle(self._picture))

    def action_command(self, name: str) -> None:
        self._ask(self._control.ask(name, self._picture))

    def _ask(self, notice: str) -> None:
        """Show the question that was just put, or why there is none."""
        self._view_behind = self._picture.snapshot.view
        self._refusal = notice if not self._control.question else ""
        self._moved(notice)

    def _not_given(self) -> bool:
        """Whether ``y`` was meant for a question that was not put, and is taken for that: once,
        with the reason again; what was refused is not to look as if it had been done."""
        refusal, self._refusal = self._refusal, ""
        if not refusal or self._notice != refusal:
            return False
        self._moved(f"nothing was given: {refusal} (y once more copies the verdict)")
        return True

    def _answer(self, key: str) -> None:
        command = self._control.answer(key)
        refused = self._control.refused(self._picture) if command else ""
        if refused:  # what could be given when it was asked for cannot be any more
            self._refusal = f"{command} was not given: {refused}"
            self._moved(self._refusal)
            return
        if command and self._commander is not None:
            self._notice = told(Word(command, "sent", ""))
            self._commander.give(command, self._hear)
        if command is not None:
            self._moved(self._notice if command else "")

    def _on_word(self, word: Word) -> None:
        """News of a command that was given."""
        self._notice = told(word)
        self._refusal = self._notice if word.stage == "refused" else ""
        self._saved = None if word.saved_step is None else (self._notice, word.saved_step)
        self.draw()

    def _overtaken(self) -> bool:
        """Whether the notice tells of a checkpoint that is not the newest any more: below one that
        is it would contradict it."""
        status = self._picture.status
        last = None if status is None else status.last_checkpoint
        if self._saved is None or last is None:
            return False
        return self._notice == self._saved[0] and last.step > self._saved[1]

    def _take_control(self, source: Source | None) -> Control:
        if self._commander is not None:
            self._commander.stop()
        operator = None if source is None or source.readonly else source.operator
        self._commander = None if operator is None else Commander(operator, author())
        why = Source.why_not if source is None else source.why_not
        return Control(allowed=operator is not None, why_not=why, unlocked=self._unlocked)
