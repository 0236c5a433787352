"""A row of bars for a series of numbers."""

import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"


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
