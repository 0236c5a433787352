"""Keeping a whole status up to date from changed rows. Pure: hub time is an argument.

A row's ages are as of the hub time at which it came. :func:`status_at` brings them all to one
moment, so that whoever shows them need not know which row is how old. With 16,384 ranks that
would be the most expensive thing the dashboard does, and a screen shows a few dozen of them: so a
row grows older when it is looked at (:class:`AgedRows`).
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from sys import intern
from typing import SupportsIndex, overload

import msgspec

from rankscope.protocol.shapes import Finding, Overview, RankRow, Status

ENDED_STATES = frozenset({"finished", "failed"})

_rank_of = attrgetter("rank")

NONE_OFF: list[str] = []


class AgedRows(list[RankRow]):
    """Rows by rank, each brought to ``hub_s`` as it is read. Not to be changed.

    ``as_came`` has them as they came, cheaply: for all that is no age. A row that did not come
    anew is the same object there in the next snapshot.
    """

    def __init__(
        self,
        rows: Sequence[RankRow],
        came_s: Sequence[float],
        hub_s: float,
        heard_s: Sequence[float | None],
    ) -> None:
        super().__init__(rows)
        self.as_came = rows
        self._came_s = came_s
        self._hub_s = hub_s
        self._heard_s = heard_s

    @overload
    def __getitem__(self, index: SupportsIndex) -> RankRow: ...

    @overload
    def __getitem__(self, index: slice) -> list[RankRow]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> RankRow | list[RankRow]:
        if isinstance(index, slice):
            return [self._aged(at) for at in range(*index.indices(len(self)))]
        return self._aged(index.__index__())

    def __iter__(self) -> Iterator[RankRow]:
        return map(self._aged, range(len(self)))

    def __reversed__(self) -> Iterator[RankRow]:
        return map(self._aged, reversed(range(len(self))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list) and list(self) == list(other)

    __hash__ = None

    def copy(self) -> list[RankRow]:
        return list(self)

    def phase_ages(self) -> Iterator[tuple[RankRow, float | None]]:
        hub_s = self._hub_s
        for row, came_s in zip(self.as_came, self._came_s, strict=True):
            phase_s = row.phase_s
            if phase_s is None or row.phase == "ended":
                yield row, phase_s
            else:
                yield row, phase_s + max(0.0, hub_s - came_s)

    def _aged(self, at: int) -> RankRow:
        row, hub_s, heard_s = self.as_came[at], self._hub_s, self._heard_s[at]
        by_s = hub_s - self._came_s[at]
        if by_s <= 0 or row.phase == "ended":
            return row
        return msgspec.structs.replace(
            row,
            phase_s=_plus(row.phase_s, by_s),
            heard_s=None if heard_s is None else max(0.0, hub_s - heard_s),
        )


def phase_ages(rows: Sequence[RankRow]) -> Iterator[tuple[RankRow, float | None]]:
    """Each row with how long it has been in its phase. Its own ages may be as of when it came."""
    if not isinstance(rows, AgedRows):
        return ((row, row.phase_s) for row in rows)
    return rows.phase_ages()


def as_came(rows: Sequence[RankRow]) -> Sequence[RankRow]:
    """``rows`` for all that is no age: see :class:`AgedRows`."""
    return rows.as_came if isinstance(rows, AgedRows) else rows


@dataclass(frozen=True)
class Held:
    """What a client holds: the newest head, and each row with the hub time of its coming."""

    head: Status
    """Its ``ranks`` are not read."""
    head_hub_s: float
    rows: Sequence[RankRow]
    """By rank."""
    came_s: Sequence[float]
    heard_s: Sequence[float | None]
    """The hub time at which each rank spoke last: it may have done so since its row came."""


def merge(held: Held | None, update: Status, hub_s: float) -> Held:
    """``held`` with ``update`` taken in: all rows anew when it is full, else the changed ones."""
    new = [_shared(row) for row in update.ranks]
    if held is None or update.full:
        new.sort(key=_rank_of)
        return Held(update, hub_s, new, [hub_s] * len(new), [_heard_s(row, hub_s) for row in new])
    rows, came_s, heard_s = list(held.rows), list(held.came_s), list(held.heard_s)
    for row in new:
        at = _place(rows, row.rank)
        if at == len(rows) or rows[at].rank != row.rank:
            rows.insert(at, row)
            came_s.insert(at, hub_s)
            heard_s.insert(at, _heard_s(row, hub_s))
        else:
            rows[at], came_s[at], heard_s[at] = row, hub_s, _heard_s(row, hub_s)
    if len(rows) and rows[-1].rank == len(rows) - 1:  # each rank is at its number
        for rank, ms in zip(update.heard, update.heard_ms, strict=False):
            if rank < len(rows):
                heard_s[rank] = hub_s - ms / 1000.0
    else:
        for rank, ms in zip(update.heard, update.heard_ms, strict=False):
            at = _place(rows, rank)
            if at < len(rows) and rows[at].rank == rank:
                heard_s[at] = hub_s - ms / 1000.0
    return Held(update, hub_s, rows, came_s, heard_s)


def _place(rows: Sequence[RankRow], rank: int) -> int:
    """Where the row of ``rank`` is, or would have to be put in."""
    if rank < len(rows) and rows[rank].rank == rank:
        return rank
    return bisect_left(rows, rank, key=_rank_of)


def _heard_s(row: RankRow, hub_s: float) -> float | None:
    return None if row.heard_s is None else hub_s - row.heard_s


def _shared(row: RankRow) -> RankRow:
    """``row`` with one copy in memory of what thousands of rows say alike."""
    row.host, row.phase, row.ended = intern(row.host), intern(row.phase), intern(row.ended)
    row.process = intern(row.process)
    if not row.probes_off:
        row.probes_off = NONE_OFF
    return row


def status_at(held: Held, hub_s: float) -> Status:
    """The whole status with every age as of ``hub_s``; an ended run ages no more."""
    rows: list[RankRow]
    if held.head.state in ENDED_STATES:
        hub_s = held.head_hub_s
        rows = list(held.rows)
    else:
        rows = AgedRows(held.rows, held.came_s, hub_s, held.heard_s)
    by_s = max(0.0, hub_s - held.head_hub_s)
    head = held.head
    return msgspec.structs.replace(
        head,
        ranks=rows,
        full=True,
        heard=[],
        heard_ms=[],
        findings=[aged_finding(finding, by_s) for finding in head.findings],
        verdict=None if head.verdict is None else aged_finding(head.verdict, by_s),
        stalled_s=_plus(head.stalled_s, by_s),
    )


def overview_at(overview: Overview, taken_hub_s: float, hub_s: float) -> Overview:
    """``overview``, which came at ``taken_hub_s``, with its ages as of ``hub_s``."""
    by_s = hub_s - taken_hub_s
    if by_s <= 0 or overview.state in ENDED_STATES:
        return overview
    return msgspec.structs.replace(
        overview,
        up_s=overview.up_s + by_s,
        stalled_s=_plus(overview.stalled_s, by_s),
        data_age_s=_plus(overview.data_age_s, by_s),
        healthy_s=_plus(overview.healthy_s, by_s),
        verdict=None if overview.verdict is None else aged_finding(overview.verdict, by_s),
    )


def aged_finding(finding: Finding, by_s: float) -> Finding:
    if by_s <= 0:
        return finding
    return msgspec.structs.replace(finding, since_s=finding.since_s + by_s)


def _plus(age_s: float | None, by_s: float) -> float | None:
    return None if age_s is None else age_s + by_s
