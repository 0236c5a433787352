"""When a rank suspects itself of hanging, and how often it says so. Pure.

Nothing is judged here: what is sent is evidence, and the hub decides what it means.
"""

import math
from collections import deque
from collections.abc import Sequence
from statistics import median, quantiles

SUSPECT_S = 0.5
SUSPECT_STEPS = 3.0
"""No progress for longer than both (the second times the median step) is suspicious."""

PATIENT_S = 20.0
"""The same before steps have shown how long they take, and while something long is expected."""

WARM_STEPS = 3
MEDIAN_OF = 16
LATE_S = 0.1
LATE_LONG_STEPS = 2.1
"""A stall that lasts so much longer than is suspicious, or so many of the run's long steps, is told
of once more: from then on the hub may call the rank late, but only of one that it has just heard
does it know where it is. (To the hub late are 2.0 of the long steps, of all ranks.)"""

LONG_OF = 64
"""So many newest steps say what a long one is: 95 in 100 are no longer."""

AGAIN_S = (2.0, 10.0)
"""After that evidence of one stall is sent again after this long: first, and in the end."""

BACKOFF = 1.5


class Suspicion:
    """Of one training thread."""

    def __init__(self) -> None:
        self.stalled = False
        self._progress: object = None
        self._since_s: float | None = None
        self._steps_s: deque[float] = deque(maxlen=LONG_OF)
        self._completed = 0
        self._next_s = 0.0
        self._wait_s = AGAIN_S[0]

    def completed(self, steps_s: Sequence[float]) -> None:
        """Steps of these durations were completed."""
        self._completed += len(steps_s)
        if self._completed > len(steps_s):  # the very first one is no measure
            self._steps_s.extend(steps_s)
        else:
            self._steps_s.extend(steps_s[1:])

    def look(self, now: float, progress: object, *, expecting: bool) -> bool:
        """Whether evidence is due at ``now``; ``progress`` differs whenever anything has moved."""
        if progress != self._progress or self._since_s is None:
            self._progress, self._since_s = progress, now
            self.stalled = False
        if now - self._since_s < SUSPECT_S:
            return False  # without asking for more, which is hardly ever needed
        patience_s = self.patience_s(expecting)
        if now - self._since_s < patience_s:
            return False
        if not self.stalled:
            self.stalled = True
            self._wait_s = AGAIN_S[0]
        elif now < self._next_s:
            return False
        late_s = (patience_s + LATE_S, LATE_LONG_STEPS * self._long_s())
        later_s = [at_s for after_s in late_s if (at_s := self._since_s + after_s) > now]
        if later_s:
            self._next_s = min(later_s)
        else:
            self._next_s = now + self._wait_s
            self._wait_s = min(AGAIN_S[1], self._wait_s * BACKOFF)
        return True

    def silent_s(self, now: float) -> float:
        """How long until there is more to say of a stall; infinite where that is not known."""
        return self._next_s - now if self.stalled and self._next_s > now else math.inf

    def still_s(self, now: float) -> float:
        """For how long nothing has moved, as far as that was looked at."""
        return 0.0 if self._since_s is None else now - self._since_s

    def again(self) -> None:
        """Whoever was told has forgotten it: say it anew if it lasts."""
        self.stalled = False

    def patience_s(self, expecting: bool) -> float:
        """How long there may be no progress before it is suspicious."""
        if self._completed < WARM_STEPS or not self._steps_s:
            return PATIENT_S
        newest_s = list(self._steps_s)[-MEDIAN_OF:]
        usual_s = max(SUSPECT_S, SUSPECT_STEPS * median(newest_s))
        return max(PATIENT_S, usual_s) if expecting else usual_s

    def _long_s(self) -> float:
        if len(self._steps_s) < 2:
            return 0.0
        return quantiles(self._steps_s, n=20, method="inclusive")[-1]
