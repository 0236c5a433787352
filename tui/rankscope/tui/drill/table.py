"""A drill for people: one line a fault, and under it what was wrong with the verdict. Pure."""

import textwrap
from collections.abc import Sequence

from rankscope.protocol.shapes import DrillRow
from rankscope.tui.drill.plan import Setting
from rankscope.tui.text.output import toned
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import safe

FAULT_CHARS = 26
FOUND_CHARS = 44
WIDTH = 100


def heading(setting: Setting, trials: int) -> list[str]:
    if setting.script is None:
        trains, attached = setting.trainer, f", attach {setting.attach}"
    else:
        trains, attached = safe(setting.script.name), ""
    return [
        f"{numbers.plural(trials, 'fault')}, each in a run of its own: {trains}, "
        f"{numbers.plural(setting.ranks, 'rank')}{attached}",
        f"  {'fault':<{FAULT_CHARS}} {'found':<{FOUND_CHARS}} latency  after step",
    ]


def lines(row: DrillRow) -> list[str]:
    """The line of one fault; ``✓`` exact, ``✗`` not."""
    mark = toned("✓", "good") if row.exact else toned("✗", "bad")
    found = _found(row)
    first = f"{mark} {row.fault:<{FAULT_CHARS}} {found:<{FOUND_CHARS}} {_seconds(row.latency_s):>7}"
    if row.after_step_s is not None:
        first += f"  {_seconds(row.after_step_s):>10}"
    return [first, *_note(row.note)]


def summary(rows: Sequence[DrillRow]) -> list[str]:
    exact = sum(row.exact for row in rows)
    nothing = sum(row.found is None and row.latency_s is None for row in rows)
    words = f"{exact} of {len(rows)} exact"
    if exact < len(rows):
        words += f", {len(rows) - exact - nothing} called something else, {nothing} not found"
    return [toned(words, "good" if exact == len(rows) else "bad")]


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"


def _found(row: DrillRow) -> str:
    if row.found is None:
        return "nothing"
    where = "".join(
        f", {key} {row.found.where[key]}" for key in ("phase",) if key in row.found.where
    )
    ranks = ",".join(map(str, row.found.ranks)) or "none"
    step = "" if row.found.step is None else f" step {row.found.step}"
    text = safe(f"{row.found.kind} rank {ranks}{step}{where}")
    return text if len(text) <= FOUND_CHARS else text[: FOUND_CHARS - 1] + "…"


def _note(note: str) -> list[str]:
    return textwrap.wrap(
        safe(note), WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )
