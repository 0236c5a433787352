"""A scaling experiment as text."""

from rankscope.protocol.experimentshapes import ScaleRow, Scaling
from rankscope.tui.text.bars import Bar, bars
from rankscope.tui.text.compare import size
from rankscope.tui.text.table import Column, table
from rankscope.tui.text.wrapped import wrapped
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import safe

COLUMNS = (
    Column("ranks"),
    Column("batch"),
    Column("update"),
    Column("tok/s"),
    Column("T1/TR"),
    Column("efficiency"),
    Column("peak"),
    Column("sends"),
    Column("counted"),
    Column("state"),
)
TRAINERS = {"ddp": "DDP", "fsdp2": "FSDP2"}


def scale_text(found: Scaling, width: int = 80, utf8: bool = True) -> list[str]:
    """A line for each number of ranks, then bars, then what the figures are."""
    where = f"{found.device}, {found.backend}" if found.backend else found.device
    trainer = TRAINERS.get(found.trainer, found.trainer)
    lines = [
        f"{found.mode} scaling of {trainer} on {numbers.plural(found.cores, 'core')} ({where}): "
        f"{numbers.count(found.parameters)} parameters",
        f"batch: sequences of {found.seq_len} tokens a rank; update: median of "
        f"{found.timed_updates} whole ones",
        "",
        *table(COLUMNS, [_cells(row) for row in found.rows], width),
    ]
    for row in found.rows:
        if row.failed:
            told = f"✗ {numbers.plural(row.ranks, 'rank')}: {safe(row.failed)}"
            lines += wrapped(told, width, "bad")
    lines += _chart(found, width, utf8)
    lines.append("")
    for told in _explained(found):
        lines += wrapped(told, width)
    for note in found.notes:
        lines += wrapped(safe(note), width, "warn")
    return lines


def _cells(row: ScaleRow) -> tuple[str, ...]:
    mark = "*" if row.oversubscribed else ""
    share = numbers.DASH if row.efficiency is None else f"{row.efficiency:.0%}{mark}"
    return (
        str(row.ranks),
        str(row.batch_size),
        numbers.span(row.update_s),
        numbers.si(row.tokens_per_s),
        numbers.digits3(row.speedup) + (mark if row.speedup is not None else ""),
        share,
        size(max(row.peak_bytes_by_rank, default=None)),
        size(row.sent_bytes),
        size(row.counted_sent_bytes),
        size(max(row.state_bytes_by_rank, default=None)),
    )


def _chart(found: Scaling, width: int, utf8: bool) -> list[str]:
    drawn = [
        Bar(
            (numbers.plural(row.ranks, "rank"),),
            (row.tokens_per_s, 0.0),
            f"{numbers.si(row.tokens_per_s)} tok/s",
        )
        for row in found.rows
        if row.tokens_per_s is not None
    ]
    return ["", *bars("tokens a second of all ranks", (), drawn, width, utf8)]


def _explained(found: Scaling) -> list[str]:
    lines = [
        "T1/TR: of the time for equally many tokens; efficiency: T1/(R*TR)",
        "peak: tensor bytes of a rank at once, counted in an update that is not timed",
        "sends: by a rank for one update, by the ring formulas; counted: the same for the "
        "collectives that torch's flight recorder has",
    ]
    ranges = [
        f"{row.ranks}: {numbers.span(row.update_s_low)} to {numbers.span(row.update_s_high)}"
        for row in found.rows
        if row.update_s is not None
    ]
    if ranges:
        lines.append(f"updates took, by ranks: {'; '.join(ranges)}")
    return lines
