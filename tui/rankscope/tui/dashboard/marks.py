"""The mark of each rank as the screens show it: what it says of itself, and what findings say."""

from dataclasses import replace

from rankscope.protocol.shapes import Finding, RankRow, Status
from rankscope.tui.words.marks import SEVERITIES, Mark, rank_mark

ABSENT = Mark("◌", "not here yet", "quiet")
WAITING = Mark("◌", "waiting", "warn")
BLAMED = Mark("✗", "to blame", "bad")
SUSPECT = replace(SEVERITIES["warning"], word="suspect")


def marks_of(status: Status) -> dict[int, Mark]:
    """The mark of every rank that was heard of, and of those a finding names."""
    critical = _named(status.findings, "critical")
    warned = _named(status.findings, "warning")
    held_up = {rank for finding in status.findings for rank in finding.victims}
    if status.state == "stalled":
        held_up |= {row.rank for row in status.ranks}
    marks = {row.rank: _mark(row, critical, warned, held_up) for row in status.ranks}
    for rank in critical - marks.keys():
        marks[rank] = BLAMED
    return marks


def _named(findings: list[Finding], severity: str) -> set[int]:
    return {rank for each in findings if each.severity == severity for rank in each.ranks}


def _mark(row: RankRow, critical: set[int], warned: set[int], held_up: set[int]) -> Mark:
    own = rank_mark(row)
    if row.rank in critical:
        # What is seen of a process ("SIGKILL", "stopped") says more than that it is to blame.
        return replace(own, glyph="✗") if own.tone == "bad" else BLAMED
    if row.process == "ended" or row.phase == "ended":
        # Ended by what befell another rank: said, but neither in the sign nor in the colour of
        # the culprit.
        dragged = own.tone == "bad" and row.rank in held_up
        return replace(own, glyph="■", tone="warn") if dragged else own
    if own.tone in ("bad", "warn"):
        return own
    if row.rank in warned:
        return SUSPECT
    return WAITING if row.rank in held_up else own
