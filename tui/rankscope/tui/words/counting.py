"""Which step a rank is in. One way of counting: that of findings, saves and logs, from 1."""

from rankscope.protocol.shapes import RankRow
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import GOOD_ENDS


def step_of(row: RankRow) -> int | None:
    """The step the rank works on, or did when it ended; the last it did where it ended in order;
    None before it trains."""
    if row.process == "ended" or row.phase == "ended":
        return row.step if row.ended in GOOD_ENDS else row.step + 1
    return None if row.phase == "starting" else row.step + 1


def step_words(row: RankRow) -> str:
    """``12 in work``, ``12, where it ended``, ``11 done``."""
    step = step_of(row)
    if step is None or step == row.step:
        return f"{numbers.count(row.step)} done"
    ended = row.process == "ended" or row.phase == "ended"
    return f"{numbers.count(step)}{', where it ended' if ended else ' in work'}"
