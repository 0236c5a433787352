"""A drill for people: one line a fault, and under it what was wrong with the verdict. Pure."""

from collections.abc import Sequence

from rankscope.protocol.shapes import DrillRow
from rankscope.tui.drill.plan import Setting
from rankscope.tui.text.output import toned
from rankscope.tui.text.table import clipped
from rankscope.tui.words import numbers
from rankscope.tui.words.advice import advice_lines
from rankscope.tui.words.marks import safe

FAULT_CHARS = 22
LATENCY, AFTER = 7, 10
LEAST_FOUND, MOST_FOUND = 20, 50
WIDTH = 80


def heading(setting: Setting, trials: int, width: int = WIDTH) -> list[str]:
    if setting.script is None:
        trains, attached = setting.trainer, f", attach {setting.attach}"
    else:
        trains, attached = safe(setting.script.name), ""
    return [
        f"{numbers.plural(trials, 'fault')}, each in a run of its own: {trains}, "
        f"{numbers.plural(setting.ranks, 'rank')}{attached}",
        f"  {'fault':<{FAULT_CHARS}} {'found':<{_room(width)}} latency  after step",
    ]


def lines(row: DrillRow, width: int = WIDTH) -> list[str]:
    """The line of one fault; ``✓`` exact, ``✗`` not. A fault of a long name stands on a line of
    its own."""
    mark = toned("✓", "good") if row.exact else toned("✗", "bad")
    room = _room(width)
    verdict = f"{_found(row, room):<{room}} {_seconds(row.latency_s):>{LATENCY}}"
    if row.after_step_s is not None:
        verdict += f"  {_seconds(row.after_step_s):>{AFTER}}"
    fault = safe(row.fault)
    if len(fault) <= FAULT_CHARS:
        told = [f"{mark} {fault:<{FAULT_CHARS}} {verdict}"]
    else:
        told = [f"{mark} {fault}", f"{'':<{FAULT_CHARS + 2}} {verdict}"]
    return [*told, *("    " + line for line in advice_lines(safe(row.note), width - 4))]


def _room(width: int) -> int:
    """Characters for what was found."""
    return max(LEAST_FOUND, min(MOST_FOUND, width - FAULT_CHARS - LATENCY - AFTER - 6))


def summary(rows: Sequence[DrillRow]) -> list[str]:
    exact = sum(row.exact for row in rows)
    nothing = sum(row.found is None and row.latency_s is None for row in rows)
    words = f"{exact} of {len(rows)} exact"
    if exact < len(rows):
        words += f", {len(rows) - exact - nothing} called something else, {nothing} not found"
    return [toned(words, "good" if exact == len(rows) else "bad")]


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"


def _found(row: DrillRow, room: int) -> str:
    """Kind, ranks and step; the phase where there is room for it."""
    if row.found is None:
        return "nothing"
    ranks = ",".join(map(str, row.found.ranks))
    who = f"rank {ranks}" if ranks else "no rank"
    step = "" if row.found.step is None else f" step {row.found.step}"
    text = safe(f"{row.found.kind} {who}{step}")
    if "phase" in row.found.where:
        with_phase = safe(f"{text}, {row.found.where['phase']}")
        text = with_phase if len(with_phase) <= room else text
    return clipped(text, room)
