"""Keeping a whole status up to date from changed rows. Pure: hub time is an argument.

A row's ages are as of the hub time at which it came. :func:`status_at` brings them all to one
moment, so that whoever shows them need not know which row is how old.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from rankscope.protocol.shapes import Finding, Overview, RankRow, Status

ENDED_STATES = frozenset({"finished", "failed"})


@dataclass(frozen=True)
class Held:
    """What a client holds: the newest head, and each row with the hub time of its coming."""

    head: Status
    """Its ``ranks`` are not read."""
    head_hub_s: float
    rows: Mapping[int, tuple[RankRow, float]]


def merge(held: Held | None, update: Status, hub_s: float) -> Held:
    """``held`` with ``update`` taken in: all rows anew when it is full, else the changed ones."""
    new = {row.rank: (row, hub_s) for row in update.ranks}
    rows = new if held is None or update.full else {**held.rows, **new}
    return Held(head=update, head_hub_s=hub_s, rows=rows)


def status_at(held: Held, hub_s: float) -> Status:
    """The whole status with every age as of ``hub_s``; an ended run ages no more."""
    if held.head.state in ENDED_STATES:
        hub_s = held.head_hub_s
        rows = [row for row, _ in held.rows.values()]
    else:
        rows = [aged_row(row, hub_s - row_hub_s) for row, row_hub_s in held.rows.values()]
    rows.sort(key=lambda row: row.rank)
    by_s = max(0.0, hub_s - held.head_hub_s)
    head = held.head
    return msgspec.structs.replace(
        head,
        ranks=rows,
        full=True,
        findings=[aged_finding(finding, by_s) for finding in head.findings],
        verdict=None if head.verdict is None else aged_finding(head.verdict, by_s),
        stalled_s=_plus(head.stalled_s, by_s),
    )


def overview_at(overview: Overview, taken_hub_s: float, hub_s: float) -> Overview:
    """``overview``, which came at ``taken_hub_s``, with its ages as of ``hub_s``."""
    by_s = hub_s - taken_hub_s
    if by_s <= 0 or overview.state in ENDED_STATES:
        return overview
    return msgspec.structs.replace(
        overview,
        up_s=overview.up_s + by_s,
        stalled_s=_plus(overview.stalled_s, by_s),
        data_age_s=_plus(overview.data_age_s, by_s),
        healthy_s=_plus(overview.healthy_s, by_s),
        verdict=None if overview.verdict is None else aged_finding(overview.verdict, by_s),
    )


def aged_row(row: RankRow, by_s: float) -> RankRow:
    """``row`` as it reads ``by_s`` later."""
    if by_s <= 0 or row.phase == "ended":
        return row
    return msgspec.structs.replace(
        row, phase_s=_plus(row.phase_s, by_s), heard_s=_plus(row.heard_s, by_s)
    )


def aged_finding(finding: Finding, by_s: float) -> Finding:
    if by_s <= 0:
        return finding
    return msgspec.structs.replace(finding, since_s=finding.since_s + by_s)


def _plus(age_s: float | None, by_s: float) -> float | None:
    return None if age_s is None else age_s + by_s
