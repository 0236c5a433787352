"""How far each rank is in each of its groups, as columns: one row for each rank and group.

They are made when somebody asks first, and kept up to date from then on.
"""

from typing import Any

import numpy as np

from rankscope.hub.state.columns import Integers
from rankscope.protocol import messages as m

MIN_ROWS = 64

Place = tuple[int, int, int]
"""Last entered, last started, last completed; -1 where there is none."""


class Pairs:
    """Rows are added and never taken away; ``clear`` forgets all of them."""

    def __init__(self) -> None:
        self.version = 0
        """Counts rows that came or went."""
        self.clear()

    def clear(self) -> None:
        self.version += 1
        self.kept = False
        """Whether the rows are up to date. While nobody asked, they are not kept."""
        self.count = 0
        self.rows: dict[int, dict[str, int]] = {}
        """The row of a rank in a group, by rank and the group's name."""
        self.names: dict[str, int] = {}
        """Numbers the names of groups in the order in which they came."""
        self.rank: Integers = np.zeros(0, dtype=np.int64)
        self.name: Integers = np.zeros(0, dtype=np.int64)
        """The rank and the number of the name of each row."""
        self.entered: Integers = np.zeros(0, dtype=np.int64)
        self.completed: Integers = np.zeros(0, dtype=np.int64)
        self._cells = _cells(self.entered, self.completed)

    def keep(self, collectives: dict[int, dict[str, Place]]) -> None:
        """Make rows of all that is known, and keep them from now on."""
        self.clear()
        self.kept = True
        for rank, groups in collectives.items():
            for name, (entered, _, completed) in groups.items():
                self._put(rank, name, entered, completed)

    def statuses(self, rank: int, statuses: tuple[m.CollectiveStatus, ...]) -> None:
        if self.kept:
            for status in statuses:
                self._put(rank, status.group, status.last_enqueued, status.last_completed)

    def done(self, rank: int, name: str, seq: int) -> None:
        """Number ``seq`` is known to be complete; the recorder's own count may lag behind."""
        row = self.rows.get(rank, {}).get(name)
        if row is not None:
            entered, completed = self._cells
            completed[row] = max(completed[row], min(seq, entered[row]))

    def _put(self, rank: int, name: str, entered: int, completed: int) -> None:
        groups = self.rows.setdefault(rank, {})
        row = groups.get(name)
        if row is None:
            row = groups[name] = self.count
            self.count += 1
            self.version += 1
            if row >= len(self.entered):
                self._grow()
            self.rank[row] = rank
            self.name[row] = self.names.setdefault(name, len(self.names))
            self._cells[1][row] = max(0, completed)
        elif entered < self._cells[0][row]:
            self._cells[1][row] = max(0, completed)  # another group of the same name
        elif completed > self._cells[1][row]:
            self._cells[1][row] = completed
        self._cells[0][row] = max(0, entered)

    def _grow(self) -> None:
        size = max(MIN_ROWS, 2 * len(self.entered))
        for name in ("rank", "name", "entered", "completed"):
            grown = np.zeros(size, dtype=np.int64)
            old = getattr(self, name)
            grown[: len(old)] = old
            setattr(self, name, grown)
        self._cells = _cells(self.entered, self.completed)


def _cells(*columns: Any) -> tuple[Any, ...]:
    """The same memory, quicker to read and write one by one."""
    return tuple(memoryview(column) for column in columns)
