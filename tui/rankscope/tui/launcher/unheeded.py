"""That a command which was asked to end goes on. Pure.

Ctrl-C of a run whose rank holds the GIL, or waits in a collective, shows nothing for half a minute.
"""

import signal

AFTER_S = 3.0
"""A command that heeds a signal, and ends its ranks for it, has ended by then."""


class Unheeded:
    """Says so once for each signal."""

    def __init__(self) -> None:
        self._asked: dict[int, float] = {}
        self._said: set[int] = set()

    def asked(self, number: int, now_s: float) -> None:
        """The command was sent signal ``number``, which asks for an end."""
        self._asked.setdefault(number, now_s)

    def words(self, now_s: float) -> str | None:
        """What there is to say at ``now_s``, of a command that has not ended."""
        for number, since_s in self._asked.items():
            if number not in self._said and now_s - since_s >= AFTER_S:
                self._said.add(number)
                return (
                    f"your command was asked to end ({signal.Signals(number).name}) and goes on; "
                    "torchrun kills ranks that do not heed it 30 s later"
                )
        return None
