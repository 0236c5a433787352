"""Commands on the run: locked at first, then each asked about before it is given. Pure.

Nothing is sent from here; the app does that when :meth:`Control.answer` says so.
"""

from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import BLANK, Line, Span, fit, line, wrap
from rankscope.tui.dashboard.screens.offers import LOCKED, no_command
from rankscope.tui.feed.commander import Word
from rankscope.tui.words.commands import QUESTIONS, consequences
from rankscope.tui.words.marks import safe

YES, NO = ("y",), ("n", "escape", "q")


class Control:
    """What may be commanded, and the question that is being asked."""

    def __init__(self, *, allowed: bool, why_not: str, unlocked: bool = False) -> None:
        self._allowed = allowed
        self._why_not = why_not
        self.unlocked = allowed and unlocked
        self.question = ""
        """The command that is asked about, or ``unlock``; empty for none."""

    @property
    def locked(self) -> str:
        """Why commands cannot be given from here, or not yet; empty while they are unlocked."""
        if not self._allowed:
            return self._why_not
        return "" if self.unlocked else LOCKED

    @property
    def may_unlock(self) -> bool:
        return self._allowed

    def ask(self, command: str, picture: Picture) -> str:
        """Ask about ``command``; not empty: why it cannot be given."""
        refused = self.refused(picture)
        if not refused and not self.unlocked:
            refused = LOCKED
        if not refused:
            self.question = command
        return refused

    def toggle(self, picture: Picture) -> str:
        """Ask whether to unlock, or lock again; what to say of it."""
        if self.unlocked:
            self.unlocked = False
            return "commands are locked again"
        refused = self.refused(picture)
        if not refused:
            self.question = "unlock"
        return refused

    def refused(self, picture: Picture) -> str:
        """Why nothing can be commanded as things are; empty when something can."""
        return no_command(picture, self._allowed, self._why_not)

    def answer(self, key: str) -> str | None:
        """Take the key that answers. The command to give; empty: none; None: it is no answer."""
        question = self.question
        if key in NO:
            self.question = ""
            return ""
        if key not in YES:
            return None
        self.question = ""
        if question == "unlock":
            self.unlocked = True
            return ""
        return question

    def lines(self, picture: Picture, width: int) -> list[Line]:
        """The question as a band over the screen."""
        edge = line(Span("━" * width, "warn"))
        lines = [edge, line("  ", Span(QUESTIONS[self.question], "strong")), BLANK]
        for text in consequences(self.question, picture.status, picture.overview):
            lines += [line("  ", each) for each in wrap(safe(text), width - 4, 4)]
        why = self.refused(picture) or picture.possible.get(self.question, "")
        if why:
            text = f"As things are it would be refused: {safe(why)}"
            lines += [line("  ", Span(each, "warn")) for each in wrap(text, width - 4, 3)]
        keys = line("  ", Span("y", "accent"), " yes   ", Span("n Esc", "accent"), " no")
        return [fit(each, width) for each in (*lines, BLANK, keys, edge)]


def told(word: Word) -> str:
    """What the footer says of a command that was given."""
    match word.stage:
        case "sent":
            return f"{word.command}: asking …"
        case "accepted":
            return word.text
        case "refused":
            return f"{word.command} refused: {word.text}"
        case "lost":
            return f"{word.command}: {word.text}"
        case _:
            return word.text


def over(lines: list[Line], band: list[Line], height: int) -> list[Line]:
    """``lines`` with ``band`` over their middle; the verdict above it stays in sight."""
    start = max(0, min((height - len(band)) // 2, height - len(band)))
    filled = [*lines, *[BLANK] * (height - len(lines))]
    return [*filled[:start], *band, *filled[start + len(band) :]][:height]
