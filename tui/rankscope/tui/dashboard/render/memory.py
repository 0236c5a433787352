"""Lines of the screen of memory."""

from collections.abc import Sequence

from rankscope.protocol.shapes import MemoryRow, MemoryView
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.findings import field_lines
from rankscope.tui.dashboard.render.line import Line, Span, StyleName, left, line, right, wrap
from rankscope.tui.dashboard.render.sparkline import by_bucket, sparkline
from rankscope.tui.text.memory import explained, growth, predicted_size
from rankscope.tui.words import numbers
from rankscope.tui.words import steps as words
from rankscope.tui.words.marks import safe

RANK, HOST = 5, 12
COLUMNS = (("now", 8), ("peak", 8), ("limit", 8), ("a step", 9), ("full at", 8))
STATE_COLUMNS = (("state", 8), ("predicted", 10))
"""Titles and widths, the blank in front included."""
FIXED = 2 + RANK + sum(width for _, width in COLUMNS) + 2
STATE = sum(width for _, width in STATE_COLUMNS)
LEAST_CELLS = 8
"""The state is shown where so many bars fit beside it."""
MOST_CELLS = 64


def has_state(view: MemoryView, width: int) -> bool:
    """Whether there are columns of the state, counted and predicted."""
    known = any(row.state_bytes is not None for row in view.ranks)
    return known and width - FIXED - STATE >= LEAST_CELLS


def has_host(room: int) -> bool:
    """Whether the rank's host has ``room`` behind the bars."""
    return room > MOST_CELLS + HOST + 2


def head_line(view: MemoryView, width: int) -> Line:
    """Titles; over the bars the steps that they span."""
    steps, state = view.steps, has_state(view, width)
    room = width - FIXED - STATE * state
    span = words.span(steps[0], steps[-1], room) if steps else ""
    columns = (*COLUMNS, *STATE_COLUMNS) if state else COLUMNS
    return line(
        "  ",
        Span(right("rank", RANK), "dim"),
        *(Span(right(title, size), "dim") for title, size in columns),
        Span(f"  {left(span, MOST_CELLS)}  host" if has_host(room) else f"  {span}", "dim"),
    )


def rank_line(row: MemoryRow, steps: Sequence[int], width: int, state: bool) -> Line:
    """One rank: how much, how fast it grows, when it is full, and the whole run as bars."""
    on_device = row.peak_allocated_bytes is not None
    now = row.allocated_bytes if on_device else row.resident_bytes
    peak = row.peak_allocated_bytes if on_device else row.peak_resident_bytes
    full = numbers.DASH if row.full_at_step is None else numbers.count(row.full_at_step)
    cells = [numbers.size_bytes(now), numbers.size_bytes(peak), numbers.size_bytes(row.limit_bytes)]
    growing = [growth(row.growth_bytes_per_step), full]
    states = [numbers.size_bytes(row.state_bytes), predicted_size(row)] if state else []
    sizes = [size for _, size in (*COLUMNS, *STATE_COLUMNS)]
    grows: StyleName = "warn" if row.growth_bytes_per_step else "dim"
    tones: list[StyleName] = ["", "", "", grows, grows, "", ""]
    room = width - FIXED - STATE * state
    most = max(0, min(MOST_CELLS, room))
    known = [float(value) for value in row.history_bytes[-len(steps) :]] if steps else []
    bars = sparkline(by_bucket(steps[-len(known) :] if known else [], known, most, max), most)
    host = f"{' ' * (most - len(bars))}  {left(safe(row.host), HOST)}" if has_host(room) else ""
    return line(
        "  ",
        right(str(row.rank), RANK),
        *(
            Span(right(cell, size), tone)
            for cell, size, tone in zip([*cells, *growing, *states], sizes, tones, strict=False)
        ),
        Span(f"  {bars}", "dim"),
        host,
    )


def memory_lines(view: MemoryView, picture: Picture, width: int) -> list[Line]:
    """What is wrong, then a line a rank, then what was predicted."""
    lines = field_lines(view.findings, picture, width)
    if not view.ranks:
        return [*lines, line("  ", Span("no rank has told its memory yet", "dim"))]
    state = has_state(view, width)
    lines += [
        head_line(view, width),
        *(rank_line(row, view.steps, width, state) for row in view.ranks),
    ]
    if view.left_out:
        told = f"{numbers.plural(view.left_out, 'rank')} with less to tell are left out"
        lines.append(line("  ", Span(told, "dim")))
    for told in explained(view):
        lines += [line("  ", Span(each, "dim")) for each in wrap(told, width - 3, 3)]
    return lines
