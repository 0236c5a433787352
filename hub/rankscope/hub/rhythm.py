"""When the hub diagnoses next. Pure.

Four times a second; at once where something happened that is worth it; and less than half as often
while little can come of it: every rank goes on, none has ended and nobody waits for an answer. A
round finds the caches cold and takes some milliseconds of a core that training could have. What is
left then is what the numbers of steps tell: a rank says them within 0.3 s, so that this, too, is
known within a second.
"""

import math

import numpy as np

from rankscope.hub.core import Core
from rankscope.hub.diagnose.hang.scene import TROUBLE_S
from rankscope.hub.state import RunState
from rankscope.hub.state.moved import moved_s
from rankscope.hub.state.ranks import UNOBSERVED

TICK_S = 0.25
CALM_TICK_S = 0.65
AWAKE_TICK_S = 0.5
"""The same where the hub is awake anyway, having heard something: it costs less then."""

MIN_TICK_S = 0.05
"""An urgent diagnosis follows the one before no sooner."""


class Rhythm:
    """Of one hub; told of each diagnosis."""

    def __init__(self, now_s: float) -> None:
        self.ticked_s = now_s
        self._calm_until_s = -math.inf

    def ticked(self, now_s: float) -> None:
        self.ticked_s = now_s

    def due_s(self, core: Core, now_s: float, *, awake: bool = False) -> float:
        """When the next diagnosis is due, as far as is known at ``now_s``."""
        if core.state.urgent:
            return self.ticked_s + MIN_TICK_S
        soon_s = self.ticked_s + TICK_S
        late_s = self.ticked_s + (AWAKE_TICK_S if awake else CALM_TICK_S)
        if not soon_s <= now_s < late_s:
            return soon_s
        told = any(finding.severity == "critical" for finding in core.know.findings)
        if told or core.know.asked is not None or core.state.numerics.replicas.divergences:
            return soon_s
        if now_s >= self._calm_until_s:  # ranks only move on: before that it holds
            self._calm_until_s = calm_until_s(core.state)
        return max(soon_s, min(late_s, self._calm_until_s))


def calm_until_s(state: RunState) -> float:
    """Until then no rank has stood still for so long that it is looked at why, should none move.

    Where steps take long, that is as long as one of them: a rank of such a run stands in a phase
    for seconds as a rule, and none is late before three of them are over. Minus infinity where a
    rank has ended, none has been heard, or the run is over.
    """
    ranks = state.ranks
    unobserved = ranks.goodbye == UNOBSERVED
    heard = ranks.heard() & ~unobserved
    if state.run_end is not None or (ranks.over() & ~unobserved).any():
        return -math.inf
    if not heard.any():
        return math.inf if unobserved.any() else -math.inf
    first_s = float(np.min(moved_s(state)[heard]))
    if first_s != first_s:
        return -math.inf
    step_s = float(np.fmin.reduce(ranks.step_s[heard]))  # NaN before the first
    return first_s + (step_s if step_s > TROUBLE_S else TROUBLE_S)
