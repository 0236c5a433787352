"""Which steps stand out from those before them. Pure."""

import math
from collections.abc import Sequence
from statistics import median

from rankscope.protocol.shapes import StepAnomaly

BEFORE = 32
"""A step is compared with so many before it."""
LEAST = 8
"""With fewer before it nothing is called odd."""
SLOW_FACTOR = 1.5
SIGMAS = 6.0
"""Robust standard deviations: 1.4826 times the median absolute deviation."""
TO_SIGMA = 1.4826
LEAST_JUMP = 0.01
"""Of the loss: less than this share of it is no jump, however calm it was."""
MAX_NAMED = 32


def odd_steps(
    steps: Sequence[int], step_s: Sequence[float | None], loss: Sequence[float | None]
) -> list[StepAnomaly]:
    """The newest odd ones of ``steps`` (oldest first; the lists are equally long), by step.

    A step is slow when it takes half as long again as the median of those before it, and that is
    beyond their scatter. A loss jumps when it rises beyond the scatter of those before it. Of
    losses that are not finite the first in a row is odd: where it came from, not where it went.
    """
    found = []
    spoilt = False
    for at, step in enumerate(steps):
        took, value = step_s[at], loss[at]
        was_spoilt, spoilt = spoilt, spoilt if value is None else not math.isfinite(value)
        if value is not None and spoilt:
            if not was_spoilt:
                odd = StepAnomaly(step=step, what="loss not finite", value=value, usual=None)
                found.append(odd)
        elif value is not None:
            usual, sigma = _usual(loss, at)
            if usual is not None and value - usual > max(
                SIGMAS * sigma, LEAST_JUMP * abs(usual), 1e-9
            ):
                found.append(StepAnomaly(step=step, what="loss jump", value=value, usual=usual))
        if took is not None and math.isfinite(took):
            usual, sigma = _usual(step_s, at)
            if usual is not None and took > SLOW_FACTOR * usual and took - usual > SIGMAS * sigma:
                found.append(StepAnomaly(step=step, what="slow step", value=took, usual=usual))
    return found[-MAX_NAMED:]


def _usual(values: Sequence[float | None], at: int) -> tuple[float | None, float]:
    """Median and robust standard deviation of the finite ones before ``at``."""
    before = [
        value
        for value in values[max(0, at - BEFORE) : at]
        if value is not None and math.isfinite(value)
    ]
    if len(before) < LEAST:
        return None, 0.0
    middle = median(before)
    return middle, TO_SIGMA * median(abs(value - middle) for value in before)
