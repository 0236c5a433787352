"""Process groups and their collectives as text."""

import textwrap

from rankscope.protocol.shapes import Collectives
from rankscope.tui.text.output import toned
from rankscope.tui.text.table import Column, table
from rankscope.tui.words import groups, numbers
from rankscope.tui.words.marks import SEVERITIES, safe

COLUMNS = (
    Column("group", right=False, least=8),
    Column("backend", right=False),
    Column("ranks"),
    Column("collective"),
    Column("ranks there", right=False, least=12),
    Column("operation", right=False, least=12),
)
CALLS = (
    Column("group", right=False),
    Column("number"),
    Column("operation", right=False),
    Column("sizes", right=False, least=12),
    Column("type", right=False),
    Column("state", right=False),
    Column("called at", right=False, least=12),
)


def collectives_text(view: Collectives, width: int) -> list[str]:
    """What is wrong, then a line a group; of one rank its newest collectives, too."""
    lines = []
    for finding in view.findings:
        mark = SEVERITIES[finding.severity]
        head = textwrap.wrap(safe(f"{mark.glyph} {finding.headline}"), width)
        lines += [toned(line, mark.tone) for line in head]
        for text in finding.evidence:
            lines += textwrap.wrap(safe(text), width, initial_indent="  ", subsequent_indent="    ")
        lines.append("")
    if view.groups:
        rows = [
            (
                groups.name(row),
                row.backend,
                str(row.size),
                groups.spread(row),
                groups.state(row),
                safe(row.operation),
            )
            for row in view.groups
        ]
        lines += table(COLUMNS, rows, width)
    if view.operations:
        lines += ["", *table(CALLS, [_call(call) for call in view.operations], width)]
    if view.note:
        lines += textwrap.wrap(safe(view.note), width)
    return lines


def _call(call: dict[str, str | int | float | None]) -> tuple[str, ...]:
    seq = call.get("seq")
    return (
        safe(str(call.get("group", ""))),
        numbers.count(seq if isinstance(seq, int) else None),
        *(safe(str(call.get(key, "") or "")) for key in ("name", "sizes", "dtype", "state")),
        safe(str(call.get("source", "") or "")),
    )
