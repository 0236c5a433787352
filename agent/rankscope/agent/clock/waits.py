"""How much of each phase of a step was waiting for other ranks in collectives. Pure.

Two things are seen: waits that Python code makes (``Work.wait``), and the end of a DDP backward,
where the reducer waits in C++ from the moment at which this rank's gradients are computed. All
ranks take equally long for a step; the one that is late is the one that waits least.
"""

from rankscope.protocol.messages import Phase

_PLACES = {Phase.DATA: 0, Phase.FORWARD: 1, Phase.BACKWARD: 2, Phase.OPTIMIZER: 3}
_OTHER = 4


class Waits:
    """Of one training thread, in the step in work."""

    def __init__(self) -> None:
        self._sums = [0.0] * 5
        self._seen = False
        self._computed_s: float | None = None
        self._since_s = 0.0  # waits since then, which are within the end of the backward
        self._backwards = self._explained = 0

    def waited(self, phase: Phase, took_s: float) -> None:
        """A collective was waited for, in ``phase``."""
        self._seen = True
        if phase is Phase.STARTING:
            return  # before the first step
        self._sums[_PLACES.get(phase, _OTHER)] += took_s
        self._since_s += took_s

    def computed(self, now: float) -> None:
        """All gradients of the backward in work are computed."""
        self._computed_s, self._since_s = now, 0.0

    def backward_ended(self, now: float) -> None:
        self._backwards += 1
        if self._computed_s is not None:
            self._explained += 1
            rest_s = max(0.0, now - self._computed_s - self._since_s)
            self._sums[_PLACES[Phase.BACKWARD]] += rest_s
            self._computed_s = None

    def take(self) -> tuple[float, ...]:
        """Seconds waited in data, forward, backward, optimizer and the rest of the step that ends.

        Empty where a part of it could not be seen: no collective at all, or a backward whose end
        may have hidden one.
        """
        known = self._seen and self._backwards == self._explained
        sums = tuple(self._sums) if known else ()
        self._sums = [0.0] * 5
        self._backwards = self._explained = 0
        return sums
