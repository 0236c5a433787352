"""Esc and the key right behind it are two keys, however close together they arrive.

A terminal sends Alt and a key as ESC and the key, so Textual takes what follows ESC within its
delay for one key with Alt, or for a character that a Mac's Option key types. No key here has Alt;
but over a slow link, or under quick fingers, Esc and the next key come in one packet.
"""

from collections.abc import Callable, Generator, Iterable

from textual import _parser, _xterm_parser
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.drivers import linux_driver
from textual.events import Key
from textual.message import Message

ESC = "\x1b"
LONGER = frozenset(sequence[1] for sequence in ANSI_SEQUENCES_KEYS if len(sequence) > 2)
"""What goes on after ESC in the sequences of arrows and function keys: ``[`` and ``O``. These are
keys of their own only when nothing follows."""
KEPT = frozenset(
    sequence
    for sequence, keys in ANSI_SEQUENCES_KEYS.items()
    if len(sequence) == 2 and isinstance(keys, tuple)
)
"""ESC and one character that together are a key on some terminal: Shift-Tab on the Linux console,
words to the left and right on a Mac. None of the characters but Tab means anything here."""


class EscapeParser(_xterm_parser.XTermParser):
    """Textual's, with Esc as a key that needs no pause behind it."""

    _escape_again = False
    """Esc is being heard of a sequence that another Esc broke off."""

    def parse(
        self, token_callback: Callable[[Message], None]
    ) -> Generator[_parser.Read1 | _parser.Peek1, str, None]:
        """As Textual does, but for ``^``, which it tells for the Esc of a broken sequence."""

        def told(token: Message) -> None:
            again, self._escape_again = self._escape_again, False
            token_callback(Key("escape", ESC) if again and isinstance(token, Key) else token)

        return super().parse(told)

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[Key]:
        """``alt``: ESC came before, and nothing in time that would make a longer sequence."""
        self._escape_again = sequence == ESC and not alt
        together = len(sequence) == 2 and sequence[0] == ESC
        if together and sequence not in KEPT and sequence[1] not in LONGER:
            alt, sequence = True, sequence[1]
        if alt:
            yield Key("escape", ESC)
        yield from super()._sequence_to_key_events(sequence)


def install() -> None:
    """Have Textual's driver read keys this way."""
    linux_driver.XTermParser = EscapeParser  # type: ignore[attr-defined]
