"""Whether this rank's own norm leaves what it used to be. Pure.

A rank that notices sends the norms of its parameters at once, for the next step overwrites them;
whether it is an outlier among the ranks is for the hub to say.
"""

import math
from collections import deque
from typing import Final

KEPT: Final = 64
LEAST: Final = 5
FACTOR: Final = 10.0


class Outliers:
    """The norms of the last steps that were finite and not zero."""

    def __init__(self) -> None:
        self._logs: deque[float] = deque(maxlen=KEPT)

    def leaves(self, norm: float) -> bool:
        """Whether ``norm`` is at least ten times all of those."""
        if len(self._logs) < LEAST or not norm > 0 or math.isinf(norm):
            return False
        return math.log(norm) - max(self._logs) >= math.log(FACTOR)

    def completed(self, norm: float) -> None:
        """A step with that norm is over."""
        if norm > 0 and math.isfinite(norm):
            self._logs.append(math.log(norm))
