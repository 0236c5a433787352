"""How far each rank has come in each of its process groups, as arrays."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rankscope.hub.state import RunState
from rankscope.hub.state.columns import Flags, Integers

OWN = "rankscope"
"""Groups of ours begin like this: they are no part of the training."""

UNDESCRIBED = ("", "undefined")
"""What torch calls a group that the user did not describe."""

NO_ROW = -1


class Member(NamedTuple):
    """A rank's place in a group."""

    entered: int
    completed: int


@dataclass(frozen=True)
class GroupRows:
    """One process group, an element for each member that is known of, by rank."""

    name: str
    description: str
    ranks: Integers
    entered: Integers
    """The newest collective that the rank has called, 0 when none."""
    completed: Integers

    def member(self, rank: int) -> Member | None:
        """Where the rank is in the group; None when it is no member."""
        place = int(np.searchsorted(self.ranks, rank))
        if place >= len(self.ranks) or self.ranks[place] != rank:
            return None
        return Member(int(self.entered[place]), int(self.completed[place]))

    def __contains__(self, rank: int) -> bool:
        return self.member(rank) is not None


@dataclass(frozen=True)
class Shape:
    """Who is in which group: changes when groups are made, and not with collectives."""

    names: list[str]
    descriptions: list[str]
    starts: Integers
    """Members of group g are ``starts[g]`` to ``starts[g + 1]``."""
    ranks: Integers
    rows: Integers
    """Of the pairs; ``NO_ROW`` for a member that has told no collective of the group."""

    @cached_property
    def groups(self) -> Integers:
        """The group of each member."""
        return np.repeat(np.arange(len(self.names)), np.diff(self.starts))


@dataclass(frozen=True)
class Table:
    """All groups at one moment."""

    shape: Shape
    entered: Integers
    completed: Integers

    def group(self, index: int) -> GroupRows:
        shape = self.shape
        here = slice(int(shape.starts[index]), int(shape.starts[index + 1]))
        return GroupRows(
            shape.names[index],
            shape.descriptions[index],
            shape.ranks[here],
            self.entered[here],
            self.completed[here],
        )

    def __len__(self) -> int:
        return len(self.shape.names)

    def all(self) -> list[GroupRows]:
        return [self.group(index) for index in range(len(self))]

    def with_any(self, members: Flags) -> list[GroupRows]:
        """The groups with a member that is flagged (by its place in ``shape.ranks``), those with
        most of them first."""
        found, counts = np.unique(self.shape.groups[members], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return [self.group(index) for index in found[order].tolist()]

    def of_ranks(self, ranks: list[int]) -> list[GroupRows]:
        """The groups that any of ``ranks`` is in."""
        return self.with_any(np.isin(self.shape.ranks, ranks))


def label(name: str, description: str) -> str:
    """What to call a group: as the user does, where he does."""
    if description == "default_pg":
        return "the default group"
    return f"group {name if description in UNDESCRIBED else description}"


def table(state: RunState) -> Table:
    """The groups in which there were collectives and that have more than one member."""
    pairs = state.progress.pairs
    if not pairs.kept:
        pairs.keep(state.words.collectives)
        for rank, windows in state.operations.windows.items():
            for name, window in windows.items():
                pairs.done(rank, name, window.done)
    version = (pairs.version, state.progress.groups_version, state.size())
    known = state.progress.derived.get("shape")
    if known is None or known[0] != version:
        known = state.progress.derived["shape"] = (version, _shape(state))
    shape: Shape = known[1]
    told = shape.rows != NO_ROW
    entered = np.where(told, pairs.entered[shape.rows], 0) if len(told) else shape.rows
    completed = np.where(told, pairs.completed[shape.rows], 0) if len(told) else shape.rows
    return Table(shape, entered, completed)


def _shape(state: RunState) -> Shape:
    pairs, table = state.progress.pairs, state.words.group_table.values
    size = state.size()
    rows = np.flatnonzero(pairs.rank[: pairs.count] < size)
    ranks = pairs.rank[rows]
    found, of_row = _groups_of(state, size, rows, ranks)
    listed = [
        (index, np.array([r for r in table[key].ranks if r < size], dtype=np.int64))
        for index, key in enumerate(found)
        if isinstance(key, int)
    ]
    groups = np.concatenate([of_row, *(np.full(len(own), index) for index, own in listed)])
    ranks = np.concatenate([ranks, *(own for _, own in listed)])
    rows = np.concatenate([rows, np.full(len(groups) - len(rows), NO_ROW)])
    order = np.lexsort((-rows, ranks, groups))  # a member that has told something comes first
    groups, ranks, rows = groups[order], ranks[order], rows[order]
    first = np.ones(len(groups), dtype=np.bool_)
    first[1:] = (groups[1:] != groups[:-1]) | (ranks[1:] != ranks[:-1])
    told_of = [
        (table[key].name, table[key].description) if isinstance(key, int) else (key, "")
        for key in found
    ]
    counts = np.bincount(groups[first], minlength=len(found))
    ours = np.array([name.startswith(OWN) for name, _ in told_of], dtype=np.bool_)
    kept = (counts >= 2) & ~ours
    first &= kept[groups]
    return Shape(
        [name for (name, _), keep in zip(told_of, kept, strict=True) if keep],
        [description for (_, description), keep in zip(told_of, kept, strict=True) if keep],
        np.concatenate([[0], np.cumsum(counts[kept])]).astype(np.int64),
        ranks[first],
        rows[first],
    )


def _groups_of(
    state: RunState, size: int, rows: Integers, ranks: Integers
) -> tuple[list[int | str], Integers]:
    """The groups that any row is of, and the one of each of ``rows``.

    A group is an index into the table of groups, or a name for one that its ranks did not list.
    Ranks that list the same groups under the same name mean the same: each is looked at once.
    """
    pairs, listed = state.progress.pairs, state.words.groups
    table = state.words.group_table.values
    lists: dict[tuple[int, ...], int] = {}
    list_of = np.fromiter(
        (lists.setdefault(listed.get(rank, ()), len(lists)) for rank in range(size)),
        dtype=np.int64,
        count=size,
    )
    by_name = [{table[i].name: i for i in indices if i >= 0} for indices in lists]
    names = list(pairs.names)
    codes, first, code_of = np.unique(
        list_of[ranks] * len(names) + pairs.name[rows], return_index=True, return_inverse=True
    )
    found: dict[int | str, int] = {}
    index_of = np.zeros(len(codes), dtype=np.int64)
    for place in np.argsort(first).tolist():
        which, name = divmod(int(codes[place]), len(names))
        key = by_name[which].get(names[name], names[name])
        index_of[place] = found.setdefault(key, len(found))
    return list(found), index_of[code_of]
