"""Whether this rank's own norm leaves what it used to be. Pure.

A rank that notices sends the norms of its parameters at once, for the next step overwrites them;
whether it is an outlier among the ranks is for the hub to say.
"""

import math
from bisect import bisect_left, insort
from collections import deque
from typing import Final

KEPT: Final = 64
LEAST: Final = 5
FACTOR: Final = 10.0

EXCEPTIONS: Final = 10
"""One in so many of the last norms, and at least one, may have been as large: a batch that was hard
for all ranks must not hide what comes right after it."""


class Outliers:
    """The norms of the last steps that were finite and not zero."""

    def __init__(self) -> None:
        self._logs: deque[float] = deque()
        self._sorted: list[float] = []

    def leaves(self, norm: float) -> bool:
        """Whether ``norm`` is at least ten times nearly all of those."""
        known = self._sorted
        if len(known) < LEAST or not norm > 0 or math.isinf(norm):
            return False
        usual = known[-1 - max(1, len(known) // EXCEPTIONS)]
        return math.log(norm) - usual >= math.log(FACTOR)

    def completed(self, norm: float) -> None:
        """A step with that norm is over."""
        if not (norm > 0 and math.isfinite(norm)):
            return
        log = math.log(norm)
        self._logs.append(log)
        insort(self._sorted, log)
        if len(self._logs) > KEPT:
            del self._sorted[bisect_left(self._sorted, self._logs.popleft())]
