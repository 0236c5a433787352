"""Lines of the screen of memory."""

from rankscope.protocol.shapes import MemoryRow, MemoryView
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.findings import field_lines
from rankscope.tui.dashboard.render.line import Line, Span, left, line, right
from rankscope.tui.dashboard.render.sparkline import sparkline
from rankscope.tui.text.memory import growth
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import safe

RANK, SIZE, STEP, HOST = 6, 9, 11, 12
FIXED = RANK + 4 * (SIZE + 1) + STEP + 8
MOST_CELLS = 64


def head_line(view: MemoryView, width: int) -> Line:
    """Titles; over the bars the steps that they span."""
    steps = view.steps
    span = f"steps {steps[0]}–{steps[-1]}" if steps else ""
    return line(
        "  ",
        Span(right("rank", RANK), "dim"),
        *(Span(f" {right(title, SIZE)}", "dim") for title in ("now", "peak", "limit", "a step")),
        Span(f" {right('full at', STEP)}", "dim"),
        Span(f"  {span}"[: max(0, width - FIXED)], "dim"),
    )


def rank_line(row: MemoryRow, width: int) -> Line:
    """One rank: how much, how fast it grows, when it is full, and the whole run as bars."""
    on_device = row.peak_allocated_bytes is not None
    now = row.allocated_bytes if on_device else row.resident_bytes
    peak = row.peak_allocated_bytes if on_device else row.peak_resident_bytes
    full = numbers.DASH if row.full_at_step is None else numbers.count(row.full_at_step)
    grows = bool(row.growth_bytes_per_step)
    cells = max(0, min(MOST_CELLS, width - FIXED))
    bars = sparkline([float(value) for value in row.history_bytes[-MOST_CELLS:]], cells)
    return line(
        "  ",
        right(str(row.rank), RANK),
        f" {right(numbers.size_bytes(now), SIZE)}",
        f" {right(numbers.size_bytes(peak), SIZE)}",
        f" {right(numbers.size_bytes(row.limit_bytes), SIZE)}",
        Span(f" {right(growth(row.growth_bytes_per_step), SIZE)}", "warn" if grows else "dim"),
        Span(f" {right(full, STEP)}", "warn" if grows else "dim"),
        Span(f"  {bars}", "dim"),
        f"  {left(safe(row.host), HOST)}" if width - FIXED > MOST_CELLS + HOST + 2 else "",
    )


def memory_lines(view: MemoryView, picture: Picture, width: int) -> list[Line]:
    """What is wrong, then a line a rank."""
    lines = field_lines(view.findings, picture, width)
    if not view.ranks:
        return [*lines, line("  ", Span("no rank has told its memory yet", "dim"))]
    lines += [head_line(view, width), *(rank_line(row, width) for row in view.ranks)]
    if view.left_out:
        told = f"{numbers.plural(view.left_out, 'rank')} with less to tell are left out"
        lines.append(line("  ", Span(told, "dim")))
    return lines
