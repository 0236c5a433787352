"""What a rank did that was not what came next in its steps before, where a group broke down. Pure.

For a breakdown of which the other ranks told nothing to compare.
"""

from collections.abc import Sequence

from rankscope.hub.diagnose.hang.difference import (
    MAX_BEYOND,
    MAX_SEQUENCES,
    Difference,
    course,
    named,
)
from rankscope.hub.diagnose.hang.table import GroupRows
from rankscope.hub.diagnose.text import ranks_text
from rankscope.hub.state import RunState
from rankscope.hub.state.habits import expected
from rankscope.hub.state.operations import UNKNOWN


def by_own_past(state: RunState, group: GroupRows, failed: Sequence[int]) -> Difference | None:
    """Ranks whose collective is not what came next in their steps before, where a group broke down.

    For a breakdown of which the others told nothing to compare. ``failed`` are its victims.
    """
    numbers = set()
    for rank in failed[:MAX_SEQUENCES]:
        place = group.member(rank)
        window = state.operations.window(rank, group.name)
        if place is not None and place.entered > place.completed:
            numbers.add(place.completed + 1)
        # Of what it told before and has gone beyond, nothing broke down. (Torch counts a collective
        # that failed as completed.)
        gone = window is not None and place is not None and window.end <= place.completed
        if window is not None and window.signatures and not gone:
            numbers.add(window.end - 1)
    for seq in sorted(numbers)[:MAX_BEYOND]:
        found = _unlike_before(state, group, seq, failed)
        if found is not None:
            return found
    return None


def _unlike_before(
    state: RunState, group: GroupRows, seq: int, failed: Sequence[int]
) -> Difference | None:
    suspects: list[int] = []
    odd = usual = UNKNOWN
    for rank in group.ranks.tolist()[:MAX_SEQUENCES]:
        window = state.operations.window(rank, group.name)
        did = UNKNOWN if window is None else window.at(seq)
        if window is None or did == UNKNOWN or rank in state.progress.expecting:
            continue
        *before, did = course(state, window, seq)
        guess = expected(before)
        if guess in (UNKNOWN, did):
            return None  # somebody did there what was to be expected
        suspects.append(rank)
        odd, usual = did, guess
    if not suspects:
        return None
    others = [rank for rank in group.ranks.tolist() if rank not in suspects]
    usually = named(state, group, seq, others or suspects, usual, usual=True)
    does = "does" if len(suspects) == 1 else "do"
    return Difference(
        group=group,
        seq=seq,
        ranks=suspects,
        others=others,
        odd=named(state, group, seq, suspects, odd, usual=False),
        usual=usually,
        why=f"{ranks_text(failed)} failed; in the steps before, {ranks_text(suspects)} did "
        f"{usually.text()} there, and now {does} not",
        at_s=0.0,
    )
