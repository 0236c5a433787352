"""The line in which a filter is typed. Pure: it takes keys and says what is in it."""

from dataclasses import dataclass

MOST = 80
"""Characters."""


@dataclass
class Typed:
    """What was typed so far."""

    text: str = ""

    def key(self, key: str, character: str | None) -> str:
        """Take a key: ``typing``, ``done`` (keep it) or ``dropped`` (take the filter away)."""
        match key:
            case "enter":
                return "done"
            case "escape":
                return "dropped"
            case "backspace" | "ctrl+h":
                if not self.text:
                    return "dropped"
                self.text = self.text[:-1]
            case "ctrl+u":
                self.text = ""
            case "ctrl+w":
                self.text = self.text.rstrip().rpartition(" ")[0]
            case _:
                self.paste(character or "")
        return "typing"

    def paste(self, text: str) -> None:
        """Text that comes in one piece; only what can be printed is taken."""
        more = "".join(char for char in text if char.isprintable())
        self.text = (self.text + more)[:MOST]
