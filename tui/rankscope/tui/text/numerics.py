"""Gradients before reduction as text: what is wrong, the ranks over time, one rank's parameters."""

import textwrap

from rankscope.protocol.shapes import Finding, Numerics, NumericsRow
from rankscope.tui.text.output import toned, untoned
from rankscope.tui.text.table import Column, table
from rankscope.tui.text.wrapped import next_lines
from rankscope.tui.words import numbers
from rankscope.tui.words import numerics as words
from rankscope.tui.words.marks import SEVERITIES, Mark, safe

COLUMNS = (
    Column("rank"),
    Column("state", right=False),
    Column("norm"),
    Column("distance"),
    Column("loss"),
    Column("skipped"),
    Column("signs"),
    Column("scale"),
)
LEAST_COURSE = 12
MAX_SIGNS = 8
MAX_PARAMETERS = 40


def numerics_text(view: Numerics, rank: int | None = None, width: int = 80) -> list[str]:
    """Findings with their evidence, then one line a rank, then the parameters of ``rank``."""
    lines: list[str] = []
    for finding in view.findings:
        lines += [*_finding(finding, width), ""]
    if view.signs and not view.findings:
        lines += ["what was not finite:", *_signs(view, width), ""]
    lines += _wrapped(words.replicas_text(view), width)
    turns = words.turns_text(view)
    if turns:
        lines += _wrapped(turns, width)
    if not any(row.local_norm is not None for row in view.ranks):
        lines.append("no rank has told of its gradients yet")
    if view.ranks:
        lines += ["", *_ranks(view, rank, width)]
    if view.left_out:
        more = numbers.plural(view.left_out, "more rank")
        lines += _wrapped(f"and {more} nearer to their peers", width)
    for row in view.ranks:
        for text in row.not_covered[:4]:
            lines += _wrapped(f"not looked at on rank {row.rank}: {safe(text)}", width)
    if rank is not None:
        lines += ["", *_parameters(view, rank, width)]
    return lines


def _finding(finding: Finding, width: int) -> list[str]:
    mark = SEVERITIES[finding.severity]
    headline = textwrap.wrap(
        f"{mark.glyph} {safe(finding.headline)}", width, subsequent_indent="  "
    )
    lines = [toned(text, mark.tone) for text in headline]
    for text in finding.evidence:
        lines += _wrapped(safe(text), width, "  ")
    return [*lines, *next_lines(finding, width)]


def _signs(view: Numerics, width: int) -> list[str]:
    lines = [
        line
        for sign in view.signs[:MAX_SIGNS]
        for line in _wrapped(safe(words.sign_text(sign)), width, "  ")
    ]
    if len(view.signs) > MAX_SIGNS:
        lines.append(f"  and {len(view.signs) - MAX_SIGNS} more")
    return lines


def _ranks(view: Numerics, rank: int | None, width: int) -> list[str]:
    marks = words.marks_of(view)
    known = words.by_trouble(view)
    shown = [row for row in known if rank is None or row.rank == rank] or known
    rows = [_row(row, marks[row.rank]) for row in shown]
    scaled = any(row.loss_scale is not None for row in shown)
    columns = COLUMNS if scaled else COLUMNS[:-1]
    cells = [list(row[: len(columns)]) for row in rows]
    plain = table(columns, cells, width)
    room = width - max(len(untoned(line)) for line in plain) - 2
    if room < LEAST_COURSE or not view.steps:
        return plain
    between = words.span(view)
    room = min(room, len(view.steps))
    titles = f"steps to {view.steps[-1]}"
    courses = [words.course(row.norms, room, between) for row in shown]
    course = Column(titles if len(titles) <= max(room, 8) else "", right=False)
    return table(
        [*columns, course],
        [[*row, text] for row, text in zip(cells, courses, strict=True)],
        width,
    )


def _row(row: NumericsRow, mark: Mark) -> tuple[str, ...]:
    return (
        str(row.rank),
        toned(f"{mark.glyph} {mark.word}", mark.tone),
        numbers.norm(row.local_norm),
        words.distance(row.distance),
        numbers.loss(row.loss),
        str(row.skipped),
        str(row.signs),
        numbers.si(row.loss_scale),
    )


def _parameters(view: Numerics, rank: int, width: int) -> list[str]:
    if not view.parameters:
        return _wrapped(f"rank {rank} has not told of its single parameters", width)
    step = "" if view.parameters_step is None else f", step {numbers.count(view.parameters_step)}"
    columns = (Column("gradient"), Column("parameter", right=False, least=20))
    rows = [
        [_value(each.value, each.local_norm), safe(each.name)]
        for each in view.parameters[:MAX_PARAMETERS]
    ]
    lines = _wrapped(f"parameters of rank {rank}{step}, those in trouble first:", width)
    lines += table(columns, rows, width, "  ")
    if len(view.parameters) > MAX_PARAMETERS:
        more = len(view.parameters) - MAX_PARAMETERS
        lines += _wrapped(f"and {more} more with smaller gradients", width, "  ")
    return lines


def _value(value: str, norm: float | None) -> str:
    return toned(value, "bad") if value else numbers.norm(norm)


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent) or [""]
