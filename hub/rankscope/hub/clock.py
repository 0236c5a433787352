"""The hub's clock: Unix time that never jumps."""

import time


class Clock:
    """Unix time as of the start, advanced by the monotonic clock.

    ``not_before_s`` is the newest time a former hub of the run has recorded: the run's time does
    not go back even when the machine's was set back in between.
    """

    def __init__(self, not_before_s: float = 0.0) -> None:
        self._offset_s = max(time.time(), not_before_s) - time.monotonic()

    def now_s(self) -> float:
        return time.monotonic() + self._offset_s


class FrozenClock:
    """The time at which a recording ends: what has ended does not grow older."""

    def __init__(self, at_s: float) -> None:
        self._at_s = at_s

    def now_s(self) -> float:
        return self._at_s
