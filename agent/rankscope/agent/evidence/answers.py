"""Who knows what the hub may ask of a rank: one small registry. Pure but for the answerers.

An answerer is called on the sending thread and returns messages without their head (attempt, rank,
seq, t_s), as (kind, fields). What nobody offers is not answered.
"""

from collections.abc import Callable, Iterable
from typing import Any

from rankscope.protocol.messages import FromRank

Answer = Iterable[tuple[type[FromRank], dict[str, Any]]]

EVERY_S = 1.0
"""The same is answered no more often; asked sooner, it is answered when that time has passed."""


class Answers:
    """What can be asked, and what has been asked and not been answered yet."""

    def __init__(self) -> None:
        self._answerers: dict[str, Callable[[], Answer]] = {}
        self._asked: dict[str, None] = {}  # in order
        self._answered_s: dict[str, float] = {}

    def offer(self, what: str, answerer: Callable[[], Answer]) -> None:
        self._answerers[what] = answerer

    def ask(self, what: Iterable[str]) -> None:
        for one in what:
            if one in self._answerers:
                self._asked[one] = None

    def due(self, now: float) -> list[Callable[[], Answer]]:
        """The answerers to call now."""
        called = []
        for what in list(self._asked):
            if now - self._answered_s.get(what, -EVERY_S) >= EVERY_S:
                del self._asked[what]
                self._answered_s[what] = now
                called.append(self._answerers[what])
        return called
