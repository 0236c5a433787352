"""How far each rank has come, beyond its phases: its collectives, and what may take it long."""

from typing import Any

import msgspec
import numpy as np

from rankscope.hub.state.columns import Floats
from rankscope.hub.state.pairs import Pairs
from rankscope.protocol import messages as m


class Progress:
    """By rank; a part of the state."""

    def __init__(self) -> None:
        self.moved_s: Floats = np.full(0, np.nan)
        """When a collective of the rank was entered or completed last, hub clock."""
        self.expecting: dict[int, str] = {}
        """What the rank is in that may take long, in words, such as ``evaluation``."""
        self.data_over: set[int] = set()
        """Ranks whose loader has ended, and that have begun no other."""
        self.version = 0
        """Counts changes of any rank's statuses or groups."""
        self.groups_version = 0
        """Counts changes of the groups alone."""
        self.pairs = Pairs()
        self.derived: dict[str, tuple[Any, Any]] = {}
        """What was made of it, with what it was made from: not saved, made again when that
        changes."""

    def beat(self, beat: m.Beat, received_s: float) -> None:
        rank = beat.rank
        if beat.collectives:
            self.moved_s[rank] = received_s
            self.version += 1
        if beat.expecting or rank in self.expecting:
            self._expects(rank, beat.expecting)
        if beat.data_over:
            self.data_over.add(rank)
        elif self.data_over:
            self.data_over.discard(rank)

    def _expects(self, rank: int, what: str) -> None:
        if what:
            self.expecting[rank] = what
        else:
            self.expecting.pop(rank, None)

    def goodbye(self, goodbye: m.Goodbye) -> None:
        self.expecting.pop(goodbye.rank, None)
        if goodbye.data_over:
            self.data_over.add(goodbye.rank)

    # --- a part of the state ------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        if size > len(self.moved_s):
            grown: Floats = np.full(size, np.nan)
            grown[: len(self.moved_s)] = self.moved_s
            self.moved_s = grown

    def forget(self, rank: int) -> None:
        self.moved_s[rank] = np.nan
        self.expecting.pop(rank, None)
        self.data_over.discard(rank)
        self.pairs.clear()
        self.version += 1

    def forget_all(self) -> None:
        self.moved_s[:] = np.nan
        self.expecting.clear()
        self.data_over.clear()
        self.derived.clear()
        self.pairs.clear()
        self.version += 1

    def dump(self) -> Any:
        return {
            "moved_s": self.moved_s.astype("<f8").tobytes(),
            "expecting": self.expecting,
            "data_over": sorted(self.data_over),
        }

    def load(self, saved: Any) -> None:
        values = np.frombuffer(msgspec.convert(saved["moved_s"], bytes), dtype="<f8")
        if len(values) != len(self.moved_s):
            raise ValueError(f"{len(values)} ranks, not {len(self.moved_s)}")
        self.moved_s = values.astype(np.float64)
        self.expecting = msgspec.convert(saved["expecting"], dict[int, str])
        self.data_over = set(msgspec.convert(saved["data_over"], list[int]))
        self.pairs.clear()
        self.version += 1
