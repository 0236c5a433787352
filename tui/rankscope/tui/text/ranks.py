"""The rank table as text."""

from rankscope.protocol.shapes import RankRow, Status
from rankscope.tui.text.output import toned
from rankscope.tui.text.table import Column, table
from rankscope.tui.text.wrapped import wrapped
from rankscope.tui.words import numbers
from rankscope.tui.words.blame import ENDED_STATES, marks_of
from rankscope.tui.words.counting import step_of
from rankscope.tui.words.marks import Mark, safe
from rankscope.tui.words.nohub import no_hub, since_when
from rankscope.tui.words.verdict import NOBODY_ATTACHED

COLUMNS = (
    Column("rank"),
    Column("state", right=False),
    Column("in step"),
    Column("in phase"),
    Column("ms/step"),
    Column("loss"),
    Column("‖g‖"),
    Column("peak"),
    Column("host", right=False, least=8),
    Column("pid"),
    Column("heard"),
    Column("lost"),
    Column("off", right=False),
)
AGES = ("in phase", "heard")
"""Of a run that is over they would say how long the hub went on, and nothing of the ranks."""


def ranks_text(status: Status, width: int = 80) -> list[str]:
    """One line a rank; columns that do not fit are left out, from the right."""
    over = status.state in ENDED_STATES
    if not status.ranks:
        return [NOBODY_ATTACHED if over else "no rank has been heard of yet"]
    marks, gone = marks_of(status), no_hub(status)
    left_out = AGES if over else () if gone is None else AGES[:1]
    kept = [at for at, column in enumerate(COLUMNS) if column.title not in left_out]
    older_s = 0.0 if gone is None else gone.since_s
    rows = [_row(row, marks[row.rank], older_s) for row in status.ranks]
    lines = table([COLUMNS[at] for at in kept], [[row[at] for at in kept] for row in rows], width)
    return lines if gone is None else [*wrapped(since_when(gone), width), *lines]


def _row(row: RankRow, mark: Mark, older_s: float) -> tuple[str, ...]:
    lost = row.dropped + row.missed
    return (
        str(row.rank),
        toned(f"{mark.glyph} {mark.word}", mark.tone),
        numbers.count(step_of(row)),
        numbers.DASH if row.phase == "ended" else numbers.age(row.phase_s),
        numbers.milliseconds(row.step_s),
        numbers.loss(row.loss),
        numbers.norm(row.grad_norm),
        numbers.size_bytes(row.memory_peak_bytes),
        safe(row.host),
        numbers.DASH if row.pid is None else str(row.pid),
        numbers.age(None if row.heard_s is None else row.heard_s + older_s),
        str(lost),
        " ".join(map(safe, row.probes_off)),
    )
