"""Memory by rank as text: how much, how fast it grows, when it will be full, what was predicted."""

from rankscope.protocol.shapes import MemoryRow, MemoryView
from rankscope.tui.text.output import toned
from rankscope.tui.text.table import Column, table
from rankscope.tui.text.wrapped import next_lines
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import SEVERITIES, safe

COLUMNS = (
    Column("rank"),
    Column("now"),
    Column("peak"),
    Column("limit"),
    Column("a step"),
    Column("full at"),
    Column("state"),
    Column("predicted"),
    Column("host", right=False, least=8),
    Column("allocated"),
    Column("reserved"),
)


def memory_text(memory: MemoryView, width: int = 80) -> list[str]:
    """A table, then what was found; columns that do not fit are left out, from the right."""
    if not memory.ranks:
        return ["no rank has told its memory yet"]
    on_device = any(row.allocated_bytes is not None for row in memory.ranks)
    columns = COLUMNS if on_device else COLUMNS[:-2]
    lines = table(columns, [_row(row)[: len(columns)] for row in memory.ranks], width)
    if memory.left_out:
        lines.append(f"{numbers.plural(memory.left_out, 'rank')} with less to tell are left out")
    known = explained(memory)
    lines += ["", *known, *([""] if known else [])]
    for finding in memory.findings:
        lines.append(toned(safe(finding.headline), SEVERITIES[finding.severity].tone))
        lines += [f"  {safe(line)}" for line in finding.evidence]
        lines += next_lines(finding, width)
    if not memory.findings:
        lines.append("nothing grows that does not come back")
    return lines


def _row(row: MemoryRow) -> tuple[str, ...]:
    on_device = row.peak_allocated_bytes is not None
    full = numbers.DASH if row.full_at_step is None else f"step {numbers.count(row.full_at_step)}"
    return (
        str(row.rank),
        numbers.size_bytes(row.allocated_bytes if on_device else row.resident_bytes),
        numbers.size_bytes(row.peak_allocated_bytes if on_device else row.peak_resident_bytes),
        numbers.size_bytes(row.limit_bytes),
        growth(row.growth_bytes_per_step),
        full,
        numbers.size_bytes(row.state_bytes),
        predicted_size(row),
        safe(row.host),
        numbers.size_bytes(row.allocated_bytes),
        numbers.size_bytes(row.reserved_bytes),
    )


def predicted_size(row: MemoryRow) -> str:
    """Of the state."""
    expected = row.predicted_state_bytes
    return numbers.size_bytes(None if expected is None else round(expected))


def explained(memory: MemoryView) -> list[str]:
    """What ``state`` and ``predicted`` are, once they are known."""
    if not any(row.state_bytes is not None for row in memory.ranks):
        return []
    lines = ["state: parameters, gradients and optimizer, without activations and buffers"]
    if memory.prediction:
        lines.append(f"predicted: {safe(memory.prediction)}")
    return lines


def growth(bytes_per_step: float | None) -> str:
    """``+4.19 MB``; ``0`` for memory that does not grow."""
    if bytes_per_step is None:
        return numbers.DASH
    return f"+{numbers.size_bytes(round(bytes_per_step))}" if bytes_per_step > 0 else "0"
