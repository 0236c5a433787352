"""How often something is looked at whose cost must stay within a share of the step's time. Pure."""

import math
from collections import deque
from collections.abc import Callable, Iterable
from statistics import median

MAX_EVERY = 1024


class Pace:
    """Intervals are powers of two of steps, so that ranks with other costs share steps.

    ``share`` of a step's time on average, but ``free_s`` a step in any case, and never more often
    than every ``least_s`` seconds. A cost is best given in time of its thread, to which what else
    the machine does adds little; ``typical`` is what counts of the newest ones.
    """

    def __init__(
        self,
        *,
        share: float,
        free_s: float,
        least_s: float = 0.0,
        max_every: int = MAX_EVERY,
        typical: Callable[[Iterable[float]], float] = median,
    ) -> None:
        self.every = 1
        """At which steps it is due: those whose number this divides."""
        self._share, self._free_s, self._least_s = share, free_s, least_s
        self._max_every = max_every
        self._typical = typical
        self._last: tuple[int, float] | None = None
        self._costs_s: deque[float] = deque(maxlen=5)
        self._steps_s: deque[float] = deque(maxlen=5)

    @property
    def step_s(self) -> float:
        """How long steps take; infinite while that is not known."""
        return median(self._steps_s) if len(self._steps_s) >= 3 else math.inf

    def due(self, step: int) -> bool:
        return step % self.every == 0

    def took(self, step: int, now: float, cost_s: float) -> None:
        """It was done at ``step`` (at ``now``) and took ``cost_s``."""
        if self._last is not None and step > self._last[0]:
            before, then = self._last
            self._steps_s.append((now - then) / (step - before))
        self._last = (step, now)
        self._costs_s.append(cost_s)
        if len(self._steps_s) < 3:
            return
        # Medians: one rank stopped for a second, or one evaluation, must not change the pace.
        cost_s, step_s = self._typical(self._costs_s), median(self._steps_s)
        every = 1
        while every < self._max_every and not self._affordable(cost_s, step_s * every, every):
            every *= 2
        if every >= self.every or self._affordable(cost_s * 1.5, step_s * every, every):
            self.every = every  # more often again only with room to spare: it must not flutter

    def rest(self) -> None:
        """Nothing is looked at for a while: what lies between is no step's time."""
        self._last = None

    def _affordable(self, cost_s: float, within_s: float, steps: int) -> bool:
        allowed_s = max(self._share * within_s, self._free_s * steps)
        return cost_s <= allowed_s and within_s >= self._least_s
