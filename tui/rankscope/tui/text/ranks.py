"""The rank table as text."""

from collections.abc import Sequence

from rankscope.protocol.shapes import RankRow
from rankscope.tui.text.output import toned
from rankscope.tui.text.table import Column, table
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import rank_mark, safe

COLUMNS = (
    Column("rank"),
    Column("state", right=False),
    Column("step"),
    Column("in phase"),
    Column("ms/step"),
    Column("loss"),
    Column("‖g‖"),
    Column("peak"),
    Column("host", right=False),
    Column("pid"),
    Column("heard"),
    Column("lost"),
    Column("off", right=False),
)


def ranks_text(ranks: Sequence[RankRow], width: int = 80) -> list[str]:
    """One line a rank; columns that do not fit are left out, from the right."""
    if not ranks:
        return ["no rank has been heard of yet"]
    return table(COLUMNS, [_row(row) for row in ranks], width)


def _row(row: RankRow) -> tuple[str, ...]:
    mark = rank_mark(row)
    lost = row.dropped + row.missed
    return (
        str(row.rank),
        toned(f"{mark.glyph} {mark.word}", mark.tone),
        numbers.count(row.step),
        numbers.DASH if row.phase == "ended" else numbers.age(row.phase_s),
        numbers.milliseconds(row.step_s),
        numbers.loss(row.loss),
        numbers.norm(row.grad_norm),
        numbers.size_bytes(row.memory_peak_bytes),
        safe(row.host),
        numbers.DASH if row.pid is None else str(row.pid),
        numbers.age(row.heard_s),
        str(lost),
        " ".join(map(safe, row.probes_off)),
    )
