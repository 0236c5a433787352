"""The newest steps as text: phases, odd steps, and a line a rank, the late ones on top."""

from collections.abc import Mapping, Sequence
from statistics import median

from rankscope.protocol.shapes import StepsRow, StepsView
from rankscope.tui.text.output import toned
from rankscope.tui.text.table import Column, table
from rankscope.tui.text.wrapped import next_lines
from rankscope.tui.words import numbers
from rankscope.tui.words import steps as words
from rankscope.tui.words.marks import SEVERITIES, Mark, safe

COLUMNS = (
    Column("rank"),
    Column("pace", right=False),
    Column("work"),
    Column("waits"),
    Column("late by"),
    Column("host", right=False, least=8),
)
PHASES = ("data", "forward", "backward", "optimizer", "other")
RECENT = 20


def steps_text(
    view: StepsView,
    rank: int | None = None,
    width: int = 80,
    marks: Mapping[int, Mark] = words.NO_MARKS,
) -> list[str]:
    """What the screen of steps shows: medians of the newest steps in place of its courses.

    ``marks``: what the ranks themselves are, beside their pace.
    """
    if not view.steps:
        return ["no step completed yet"]
    lines = [
        f"steps {view.steps[0]}–{view.steps[-1]}, medians of the last {RECENT}: "
        f"step {_median(view.step_s)}",
        f"  {_phases(view.phase_s)}  waits {_median(view.waited_s)}",
        "",
    ]
    for odd in view.anomalies:
        mark = words.anomaly_mark(odd)
        lines.append(toned(f"{mark.glyph} {words.anomaly_text(odd)}", mark.tone))
    if view.anomalies:
        lines.append("")
    lines += table(
        COLUMNS, [_row(row, marks.get(row.rank)) for row in words.by_lateness(view, marks)], width
    )
    if view.left_out:
        lines.append(f"{numbers.plural(view.left_out, 'rank')} on time left out")
    if rank is not None:
        lines += ["", *_own(view, rank)]
    lines.append("")
    for finding in view.findings:
        lines.append(toned(safe(finding.headline), SEVERITIES[finding.severity].tone))
        lines += [f"  {safe(line)}" for line in finding.evidence]
        lines += next_lines(finding, width)
    if not view.findings:
        lines.append("no rank holds the others up")
    return lines


def _own(view: StepsView, rank: int) -> list[str]:
    if not view.rank_steps:
        return [f"rank {rank} has completed no step yet"]
    return [
        f"rank {rank}, its own work without waiting, steps {view.rank_steps[0]}–"
        f"{view.rank_steps[-1]}:",
        f"  {_phases(view.rank_phase_s)}  waits {_median(view.rank_waited_s)}",
    ]


def _phases(phase_s: dict[str, list[float]]) -> str:
    shown = {name: phase_s[name] for name in PHASES if phase_s.get(name)}
    if not any(shown.get("other", [])[-RECENT:]):
        shown.pop("other", None)
    return "  ".join(f"{name} {_median(values)}" for name, values in shown.items())


def _median(values: Sequence[float | None]) -> str:
    known = words.known(values)[-RECENT:]
    return numbers.span(median(known) if known else None)


def _row(row: StepsRow, of_rank: Mark | None) -> tuple[str, ...]:
    mark = words.mark_of(row, of_rank)
    return (
        str(row.rank),
        toned(f"{mark.glyph} {mark.word}", mark.tone),
        numbers.span(row.work_s),
        numbers.span(row.waited_s),
        numbers.span(row.late_s) if row.phase else numbers.DASH,
        safe(row.host),
    )
