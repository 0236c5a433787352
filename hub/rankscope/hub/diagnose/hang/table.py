"""How far each rank has come in each of its process groups, as arrays."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rankscope.hub.state import RunState
from rankscope.hub.state.columns import Integers

OWN = "rankscope"
"""Groups of ours begin like this: they are no part of the training."""

UNDESCRIBED = ("", "undefined")
"""What torch calls a group that the user did not describe."""


class Member(NamedTuple):
    """A rank's place in a group."""

    entered: int
    completed: int


@dataclass(frozen=True)
class GroupRows:
    """One process group, a row for each member that is known of, by rank."""

    name: str
    description: str
    ranks: Integers
    entered: Integers
    """The newest collective that the rank has called, 0 when none."""
    completed: Integers
    where: dict[int, int] = field(repr=False)
    """The row of each rank."""

    def member(self, rank: int) -> Member | None:
        row = self.where.get(rank)
        if row is None:
            return None
        return Member(int(self.entered[row]), int(self.completed[row]))


def label(name: str, description: str) -> str:
    """What to call a group: as the user does, where he does."""
    if description == "default_pg":
        return "the default group"
    return f"group {name if description in UNDESCRIBED else description}"


def table(state: RunState) -> list[GroupRows]:
    """The groups in which there were collectives; rebuilt only when something changed."""
    known = state.progress.derived.get("table")
    if known is not None and known[0] == state.progress.version:
        rows: list[GroupRows] = known[1]
        return rows
    rows = _build(state)
    state.progress.derived["table"] = (state.progress.version, rows)
    return rows


def _build(state: RunState) -> list[GroupRows]:
    words = state.words
    groups = words.group_table.values
    keys: dict[tuple[int, ...], dict[str, int]] = {}
    windows = state.operations.windows
    members: dict[int | str, dict[int, Member]] = {}
    for rank, statuses in words.collectives.items():
        indices = words.groups.get(rank, ())
        by_name = keys.get(indices)
        if by_name is None:
            by_name = keys[indices] = {groups[i].name: i for i in indices if i >= 0}
        for name, (enqueued, _, completed) in statuses.items():
            window = windows.get(rank, {}).get(name)
            if window is not None and window.done > completed:
                completed = min(window.done, enqueued)
            place = Member(enqueued if enqueued > 0 else 0, completed if completed > 0 else 0)
            members.setdefault(by_name.get(name, name), {})[rank] = place
    rows = []
    for key, found in members.items():
        name, description = str(key), ""
        if isinstance(key, int):
            group = groups[key]
            name, description = group.name, group.description
            for rank in group.ranks:
                if rank not in found and rank < state.size():
                    found[rank] = Member(0, 0)
        if len(found) < 2 or name.startswith(OWN):
            continue
        ranks = np.fromiter(found, dtype=np.int64, count=len(found))
        order = np.argsort(ranks)
        places = np.array(list(found.values()), dtype=np.int64)[order]
        ranks = ranks[order]
        where = {rank: row for row, rank in enumerate(ranks.tolist())}
        rows.append(GroupRows(name, description, ranks, places[:, 0], places[:, 1], where))
    return rows
