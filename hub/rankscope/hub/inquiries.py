"""What the hub asks of ranks and sentinels beyond what they say by themselves. Pure.

Whoever diagnoses says at each moment what it would like to know (``want``); at most so much of it
goes out (``due``): the same thing of the same rank once a second, then less and less often, and a
bounded number at a time, those wanted first.
"""

from collections.abc import Iterable
from dataclasses import dataclass

STACKS = "stacks"
OPERATIONS = "operations"
FOREIGN_STACKS = "foreign_stacks"
CHECKSUMS = "checksums"
PARAMETER_NORMS = "parameter_norms"

OF_AGENT = frozenset({STACKS, OPERATIONS, CHECKSUMS, PARAMETER_NORMS})
OF_SENTINEL = frozenset({FOREIGN_STACKS})

EVERY_S = 1.0
"""The same thing is asked of the same rank no sooner."""

BACKOFF = 1.5
MAX_EVERY_S = 10.0
"""Whoever goes on wanting the same is asked less and less often."""

FORGOTTEN_S = 15.0
"""What was not wanted for so long is asked at once again."""

MAX_AT_ONCE = 64
"""Ranks asked in one moment: answers are up to 64 KiB each."""

MAX_WANTED = 4096


@dataclass
class _Asked:
    at_s: float
    every_s: float


class Inquiries:
    """Collects what is wanted and says what to ask now."""

    def __init__(self) -> None:
        self._wanted: dict[tuple[int, str], bool] = {}
        """In the order of wanting; True where a person asks."""
        self._asked: dict[tuple[int, str], _Asked] = {}

    def want(self, rank: int, *what: str, now: bool = False) -> None:
        """Ask ``rank`` for each of ``what`` when that is due. Forgotten after the next ``due``.

        With ``now`` (a person asks) no more time need have gone by than ``EVERY_S``.
        """
        for one in what:
            if len(self._wanted) < MAX_WANTED:
                key = (rank, one)
                self._wanted[key] = now or self._wanted.get(key, False)

    def want_all(self, ranks: Iterable[int], *what: str) -> None:
        for rank in ranks:
            self.want(rank, *what)

    def due(self, now_s: float) -> list[tuple[int, tuple[str, ...]]]:
        """Whom to ask for what now: at most ``MAX_AT_ONCE`` ranks, each once."""
        chosen: dict[int, list[str]] = {}
        for (rank, what), at_once in self._wanted.items():
            if rank not in chosen and len(chosen) >= MAX_AT_ONCE:
                continue
            if self._may_ask((rank, what), at_once, now_s):
                chosen.setdefault(rank, []).append(what)
        self._wanted.clear()
        if len(self._asked) > MAX_WANTED:
            self._asked = {
                key: asked
                for key, asked in self._asked.items()
                if now_s - asked.at_s <= FORGOTTEN_S
            }
        return [(rank, tuple(what)) for rank, what in chosen.items()]

    def _may_ask(self, key: tuple[int, str], at_once: bool, now_s: float) -> bool:
        asked = self._asked.get(key)
        if asked is None or now_s - asked.at_s > FORGOTTEN_S:
            self._asked[key] = _Asked(now_s, EVERY_S)
            return True
        if now_s - asked.at_s < (EVERY_S if at_once else asked.every_s):
            return False
        asked.at_s = now_s
        asked.every_s = min(MAX_EVERY_S, asked.every_s * BACKOFF)
        return True
