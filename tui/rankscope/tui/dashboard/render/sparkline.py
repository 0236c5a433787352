"""A row of bars for a series of numbers."""

import math
from collections.abc import Callable, Sequence

BARS = "▁▂▃▄▅▆▇█"


def by_bucket(
    steps: Sequence[int],
    values: Sequence[float | None],
    width: int,
    choose: Callable[[Sequence[float]], float],
) -> list[float | None]:
    """``values`` in at most ``width`` buckets of equally many steps, oldest first.

    Buckets begin at multiples of their size, so that a new step changes the last one only.
    ``choose`` makes one number of a bucket's known ones; one that is not finite wins.
    """
    if not steps or width <= 0:
        return []
    size = max(1, (steps[-1] - steps[0]) // width)
    while steps[-1] // size - steps[0] // size + 1 > width:
        size += 1
    buckets: dict[int, list[float]] = {step // size: [] for step in steps}
    for step, value in zip(steps, values, strict=True):
        if value is not None:
            buckets[step // size].append(value)
    return [_of_bucket(known, choose) for _, known in sorted(buckets.items())]


def drawn_out(values: Sequence[float | None], width: int) -> Sequence[float | None]:
    """``values`` repeated so that they fill ``width``, when they fill more than half of it."""
    if 2 * len(values) <= width:
        return values
    return [values[place * len(values) // width] for place in range(width)]


def _of_bucket(known: Sequence[float], choose: Callable[[Sequence[float]], float]) -> float | None:
    strange = [value for value in known if not math.isfinite(value)]
    if strange:
        return strange[0]
    return choose(known) if known else None


def sparkline(
    values: Sequence[float | None],
    width: int,
    *,
    low: float | None = None,
    high: float | None = None,
) -> str:
    """The newest ``width`` of ``values`` (oldest first) as bars between ``low`` and ``high``.

    Without these the extremes of what is shown are taken; then values that differ by less than
    2 % of their size are one level, for noise must not look like a cliff. A value that is not
    finite shows as ``✗``, an unknown one as a blank.
    """
    if width <= 0:
        return ""
    shown = list(values)[-width:]
    known = [value for value in shown if value is not None and math.isfinite(value)] or [0.0]
    bottom = min(known) if low is None else low
    top = max(known) if high is None else high
    span = max(top - bottom, 0.02 * max(abs(bottom), abs(top)))
    bars = "".join(_bar(value, bottom, span) for value in shown)
    return bars + " " * (width - len(bars))


def _bar(value: float | None, low: float, span: float) -> str:
    if value is None:
        return " "
    if not math.isfinite(value):
        return "✗"
    level = 0 if span == 0 else int((value - low) / span * (len(BARS) - 1) + 0.5)
    return BARS[max(0, min(len(BARS) - 1, level))]


def chart(
    values: Sequence[float | None],
    width: int,
    rows: int,
    *,
    low: float | None = None,
    high: float | None = None,
) -> list[str]:
    """As :func:`sparkline`, ``rows`` lines high; the top line first."""
    shown = list(values)[-width:] if width > 0 else []
    known = [value for value in shown if value is not None and math.isfinite(value)] or [0.0]
    bottom = min(known) if low is None else low
    top = max(known) if high is None else high
    span = max(top - bottom, 0.02 * max(abs(bottom), abs(top))) or 1.0
    columns = [_column(value, bottom, span, rows) for value in shown]
    lines = ["".join(column[row] for column in columns) for row in range(rows)]
    return [line + " " * (width - len(line)) for line in lines]


def _column(value: float | None, low: float, span: float, rows: int) -> str:
    """One value's characters from top to bottom; at least the lowest bar of the lowest line."""
    if value is None:
        return " " * rows
    if not math.isfinite(value):
        return "✗" * rows
    share = max(0.0, min(1.0, (value - low) / span))
    eighths = 1 + int(share * (rows * len(BARS) - 1) + 0.5)
    full, rest = divmod(eighths, len(BARS))
    column = BARS[-1] * full + (BARS[rest - 1] if rest else "")
    return column.ljust(rows)[::-1]
