"""Counting the messages that were numbered and never came."""

from collections.abc import Mapping
from typing import Any, ClassVar

from rankscope.hub.state.columns import COUNT, Columns, Field, Integers

MAX_REMEMBERED_GAPS = 256
"""Numbers a peer skipped that may still come late; older gaps are lost for good."""

MAX_JUMP = 1 << 32
"""No sender lost as many messages in a row: a number further ahead is a lie."""

FRESH, LATE, AGAIN = 1, 2, 0


class Sequences(Columns):
    """For each sender the newest number and how many below it are missing."""

    FIELDS: ClassVar[Mapping[str, Field]] = {"last": COUNT, "missed": COUNT}
    last: Integers
    missed: Integers

    def __init__(self) -> None:
        super().__init__()
        self.gaps: dict[int, set[int]] = {}

    def arrived(self, sender: int, seq: int) -> int:
        """Note message ``seq``: FRESH (newer than all), LATE (fills a gap) or AGAIN (a repeat)."""
        cells = self.cells
        last: int = cells.last[sender]
        if seq == last + 1:
            cells.last[sender] = seq
            return FRESH
        if seq > last:
            cells.missed[sender] += seq - last - 1
            self._remember(sender, last + 1, seq)
            cells.last[sender] = seq
            return FRESH
        gaps = self.gaps.get(sender)
        if gaps is not None and seq in gaps:
            gaps.discard(seq)
            cells.missed[sender] -= 1
            return LATE
        return AGAIN

    def _remember(self, sender: int, first: int, end: int) -> None:
        gaps = self.gaps.setdefault(sender, set())
        gaps.update(range(max(first, end - MAX_REMEMBERED_GAPS), end))
        if len(gaps) > MAX_REMEMBERED_GAPS:
            self.gaps[sender] = set(sorted(gaps)[-MAX_REMEMBERED_GAPS:])

    def restart(self, sender: int) -> None:
        """The sender begins a new life and numbers from 1 again."""
        self.clear(sender)
        self.gaps.pop(sender, None)

    def restart_all(self) -> None:
        self.clear()
        self.gaps.clear()

    def dump(self) -> dict[str, Any]:
        return super().dump() | {
            "gaps": {sender: sorted(gaps) for sender, gaps in self.gaps.items() if gaps}
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        super().load(saved)
        self.gaps = {int(sender): set(gaps) for sender, gaps in saved.get("gaps", {}).items()}
