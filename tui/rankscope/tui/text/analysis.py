"""What dump files tell, as text: the verdict first, then how far each group has come."""

from rankscope.protocol.shapes import Analysis, CollectiveRow
from rankscope.tui.text.output import toned
from rankscope.tui.text.table import Column, table
from rankscope.tui.text.wrapped import next_lines
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import SEVERITIES, safe

COLUMNS = (
    Column("group", right=False),
    Column("ranks"),
    Column("entered"),
    Column("complete"),
    Column("behind", right=False),
    Column("last", right=False, least=24),
    Column("called at", right=False, least=16),
)
MAX_RANKS = 6
MAX_NOTES = 8


def analysis_text(found: Analysis, width: int = 80) -> list[str]:
    """Who is to blame, which dumps are missing, and a line for each group."""
    lines = []
    for finding in found.findings:
        mark = SEVERITIES[finding.severity]
        lines.append(toned(f"{mark.glyph} {finding.kind}: {safe(finding.headline)}", mark.tone))
        lines += [f"  {safe(line)}" for line in finding.evidence]
        lines += next_lines(finding, width)
    if not found.findings:
        lines.append(
            toned(
                f"✓ {numbers.plural(len(found.ranks), 'dump')}: no rank waits for another", "good"
            )
        )
    if found.missing:
        lines.append(toned(f"! no dump of {ranks_text(found.missing)}", "warn"))
    lines += [toned(f"! {safe(note)}", "warn") for note in found.notes[:MAX_NOTES]]
    if len(found.notes) > MAX_NOTES:
        lines.append(f"  and {len(found.notes) - MAX_NOTES} more files were passed over")
    if found.groups:
        lines.append("")
        lines += table(COLUMNS, [_row(row) for row in found.groups], width)
    return lines


def _row(row: CollectiveRow) -> tuple[str, ...]:
    name = row.group if row.description in ("", "undefined") else row.description
    entered = str(row.enqueued_most)
    if row.enqueued_least != row.enqueued_most:
        entered = f"{row.enqueued_least}–{row.enqueued_most}"
    return (
        safe(name),
        str(row.size),
        entered,
        str(row.completed_least),
        ranks_text(row.behind, short=True) if row.behind else numbers.DASH,
        safe(row.operation),
        safe(row.source),
    )


def ranks_text(ranks: list[int], *, short: bool = False) -> str:
    """``rank 3``, ``ranks 3, 5 and 7``, ``ranks 1, 2, 3 … (40 in all)``; ``short``: bare."""
    named = ", ".join(str(rank) for rank in ranks[:MAX_RANKS])
    if len(ranks) > MAX_RANKS:
        named += f" … ({len(ranks)} in all)"
    if short:
        return named
    return f"rank {named}" if len(ranks) == 1 else f"ranks {named}"
