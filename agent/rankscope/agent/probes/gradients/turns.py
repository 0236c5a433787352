"""The steps at which large gradients are read on a CPU: all, or every second, fourth, … Pure.

Reading is bound by memory: 40 MB take 2 to 4 ms of one core. Of a step that computes long enough
on them that is nothing; of one with few tokens to a parameter it is some per cent, and then they
are read at fewer steps, and at all again as soon as anything is wrong. Small gradients are read at
every step whatever happens. They show nearly everything, for the gradient of a bias or of a norm's
weight is a sum over what flows back through its layer: a NaN in there is a NaN in it.
"""

from typing import Final

from rankscope.agent.probes.pace import Pace

SHARE: Final = 0.002
"""The share of a step's time that reading large gradients takes at most, on average, where they
take turns. All looks at numbers together may take one per cent: what is done at every step (small
gradients, glances, versions of parameters) half of it, replicas 0.1 %, parameters and reduced norms
0.05 % each."""

QUICK_SHARE: Final = 0.015
FREE_S: Final = 0.0005
"""Reading that takes less than such a share, or less than this, at its quickest, is done at every
step: to name where a NaN began is worth that. A model of a million parameters takes 0.2 to 1.2 % of
a step on two cores, as their memory goes; one of ten, two to three, which is too much."""

FORGETS: Final = 1.02
"""By so much the least that a reading ever took grows with each further one."""


class Turns:
    """Of one process. A step is the number of its note."""

    def __init__(self) -> None:
        self.cost_s = 0.0
        """What reading takes in the step in work, of what was read so far: time of its thread."""
        self.left_out = False
        """Whether large gradients are left out in the step in work, unless something is wrong."""
        self._pace = Pace(share=SHARE, free_s=0.0, typical=min)
        self._quickest_s = 0.0  # the same, had each reading been as quick as it ever was
        self._least_s: dict[int, float] = {}

    @property
    def every(self) -> int:
        """Large gradients are read at steps that this divides."""
        return self._pace.every

    def took(self, index: int, took_s: float) -> None:
        """Reading the gradient ``index`` (or those from it on that are read with it) took so long.

        The least is kept of each: on a very busy machine some reading is slow in every step.
        """
        least_s = min(took_s, self._least_s.get(index, took_s) * FORGETS)
        self._least_s[index] = least_s
        self._quickest_s += least_s
        self.cost_s += took_s

    def forget(self, index: int) -> None:
        """There is no such gradient any more."""
        self._least_s.pop(index, None)

    def begin(self, before: int, number: int, now_s: float) -> None:
        """Step ``number`` begins, after ``before``."""
        if self.cost_s and not self.left_out:
            # Whether any is left out follows from what reading is at its quickest, so that none is
            # because of what else runs; how many are, from what it takes as things are.
            quick = self._quickest_s <= max(FREE_S, QUICK_SHARE * self._pace.step_s)
            self._pace.took(before, now_s, 0.0 if quick else self.cost_s)
        self.cost_s = self._quickest_s = 0.0
        self.left_out = not self._pace.due(number)

    def rest(self) -> None:
        """Nothing is read for a while."""
        self.cost_s = self._quickest_s = 0.0
        self._pace.rest()

    def text(self) -> str:
        """Empty when all are read at every step."""
        if self.every == 1:
            return ""
        return f"large ones at every {'2nd' if self.every == 2 else f'{self.every}th'} step"
