"""A rank's tokens a second: they are of its last step, which may lie far back."""

from rankscope.protocol.shapes import RankRow, State
from rankscope.tui.words import numbers

LATE_S = 3.0
LATE_STEPS = 3.0


def is_current(row: RankRow, state: State) -> bool:
    """Whether the rank, of a run in this state, is still as fast as in its last step: it is heard,
    and stands in no phase for longer than three steps take."""
    if state != "running" or row.phase == "ended":
        return False
    longest_s = max(row.phase_s or 0.0, row.heard_s or 0.0)
    return longest_s <= max(LATE_S, LATE_STEPS * (row.step_s or 0.0))


def per_s(row: RankRow, *, current: bool) -> str:
    """``25.1 k``, and ``was 25.1 k`` of one that is not at that any more."""
    told = numbers.si(row.tokens_per_s)
    return told if current or row.tokens_per_s is None else f"was {told}"
