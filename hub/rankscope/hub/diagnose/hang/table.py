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
    words = state.words
    groups = words.group_table.values
    size = state.size()
    keys: dict[tuple[int, ...], dict[str, int]] = {}
    members: dict[int | str, dict[int, int]] = {}
    for rank, rows in state.progress.pairs.rows.items():
        if rank >= size:
            continue
        indices = words.groups.get(rank, ())
        by_name = keys.get(indices)
        if by_name is None:
            by_name = keys[indices] = {groups[i].name: i for i in indices if i >= 0}
        for name, row in rows.items():
            members.setdefault(by_name.get(name, name), {})[rank] = row
    names, descriptions, counts = [], [], []
    ranks: list[int] = []
    places: list[int] = []
    for key, found in members.items():
        name, description = str(key), ""
        if isinstance(key, int):
            group = groups[key]
            name, description = group.name, group.description
            for rank in group.ranks:
                if rank < size:
                    found.setdefault(rank, NO_ROW)
        if len(found) < 2 or name.startswith(OWN):
            continue
        names.append(name)
        descriptions.append(description)
        counts.append(len(found))
        ordered = sorted(found)
        ranks += ordered
        places += [found[rank] for rank in ordered]
    return Shape(
        names,
        descriptions,
        np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64),
        np.array(ranks, dtype=np.int64),
        np.array(places, dtype=np.int64),
    )
