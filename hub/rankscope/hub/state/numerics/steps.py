"""What is told by comparing the ranks at one step that all of them have completed. Pure."""

import numpy as np
from numpy.typing import NDArray

from rankscope.hub.state.columns import Flags, Integers
from rankscope.hub.state.numerics.columns import (
    NO_FINGERPRINT,
    SKIPPED,
    UPDATED,
    NumericColumns,
)

FEW_RANKS = 64
"""Up to so many are sooner compared one by one than sorted."""


def some_skipped(columns: NumericColumns, steps: range) -> bool:
    """Whether any rank made no update at any of ``steps``, as far as they are kept."""
    slots = [slot for step in steps if (slot := columns.recent.slot(step)) is not None]
    return bool((columns.updates[:, slots] == SKIPPED).any())


def lone_skips(columns: NumericColumns, step: int, among: Flags) -> list[int]:
    """Ranks that made no update at ``step`` while others did."""
    slot = columns.recent.slot(step)
    if slot is None:
        return []
    updates = columns.updates[:, slot]
    if not (updates[among] == UPDATED).any():
        return []
    return np.flatnonzero(among & (updates == SKIPPED)).tolist()


def find_twins(columns: NumericColumns, steps: range, among: Flags) -> None:
    """Note for each rank whether another one had the same data at ``steps`` as it had."""
    for step in steps[-1:] if _all_differ(columns, steps, among) else steps:
        _find_twins(columns, step, among)


def _all_differ(columns: NumericColumns, steps: range, among: Flags) -> bool:
    """Whether at each of ``steps`` the same few ranks told of their data, and no two had the same:
    then what is noted at the last of them is all that is left."""
    slots = [slot for step in steps if (slot := columns.recent.slot(step)) is not None]
    if not 2 <= len(slots) == len(steps):
        return False
    ranks = np.flatnonzero(among)
    if not 2 <= ranks.size <= FEW_RANKS:
        return False
    by_step: list[list[int]] = columns.fingerprints[ranks][:, slots].T.tolist()
    return all(
        len(set(prints)) == len(prints) and NO_FINGERPRINT not in prints for prints in by_step
    )


def _find_twins(columns: NumericColumns, step: int, among: Flags) -> None:
    """Note for each rank whether another one had the same data at ``step`` as it had.

    What is the same from step to step is made up (a benchmark), and where all ranks come in equal
    parties the data are shared by design (they split the model): neither is a twin.
    """
    slot = columns.recent.slot(step)
    if slot is None:
        return
    prints = columns.fingerprints[:, slot]
    told = among & (prints != NO_FINGERPRINT)
    if np.count_nonzero(told) < 2:
        return  # fingerprints are not taken at every step
    twins = _twins(prints, told & (prints != columns.compared))
    same = (twins >= 0) & (twins == columns.twin) & (columns.twin_steps > 0)
    steps = np.where(same, columns.twin_steps + 1, np.where(twins >= 0, 1, 0))
    since = np.where(same, columns.twin_since, step)
    columns.twin_steps[told] = steps[told]
    columns.twin_since[told] = since[told]
    columns.twin[told] = twins[told]
    columns.compared[told] = prints[told]


def _twins(prints: NDArray[np.int32], here: Flags) -> Integers:
    """The lowest rank with the same fingerprint, for ranks that share theirs; else -1."""
    found: Integers = np.full(len(prints), -1, dtype=np.int64)
    ranks = np.flatnonzero(here)
    if ranks.size < 2:
        return found
    if ranks.size <= FEW_RANKS:
        for together in _parties(ranks.tolist(), prints[ranks].tolist()):
            found[together] = together[0]
        return found
    _, first, party, count = np.unique(
        prints[ranks], return_index=True, return_inverse=True, return_counts=True
    )
    if len(count) > 1 and count[0] > 1 and (count == count[0]).all():
        return found  # parties of equal size: tensor or pipeline parallel
    shared = count[party] > 1
    found[ranks[shared]] = ranks[first[party]][shared]
    return found


def _parties(ranks: list[int], prints: list[int]) -> list[list[int]]:
    """Those of ``ranks`` that share their fingerprint, together; none where all come so."""
    if len(set(prints)) == len(prints):
        return []
    by_print: dict[int, list[int]] = {}
    for rank, one in zip(ranks, prints, strict=True):
        by_print.setdefault(one, []).append(rank)
    parties = list(by_print.values())
    if len(parties) > 1 and len(set(map(len, parties))) == 1:
        return []  # parties of equal size: tensor or pipeline parallel
    return [party for party in parties if len(party) > 1]
