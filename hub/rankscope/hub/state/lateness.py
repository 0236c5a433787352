"""How much longer than usual each rank worked, step by step: a rank by time.

It is taken over from :class:`~rankscope.hub.state.paces.Paces`, which compares the newest steps
only, so that a screen can show more of them.
"""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankscope.hub.state.columns import Integers
from rankscope.hub.state.paces import KEPT, Paces

STEPS = 128
"""Newest steps of each rank."""

SAVED_RANKS = 256
"""Worlds up to this size have it in their snapshots: 64 kB."""

Singles = NDArray[np.float32]


class Lateness:
    """Rings by rank; the step ``n`` is in column ``n % STEPS``. A part of the state."""

    def __init__(self) -> None:
        self.late_s: Singles = np.zeros((0, STEPS), dtype=np.float32)
        """Work beyond the usual in the phase in which the rank lost most; NaN: not compared."""
        self.step_s: Singles = np.full(STEPS, np.nan, dtype=np.float32)
        """The mean step time."""
        self.step: Integers = np.zeros(STEPS, dtype=np.int64)
        """Which step each column is of."""
        self.taken = 0
        """The newest step taken over."""

    def take(self, paces: Paces) -> None:
        """Take over what was compared since the last time."""
        first = max(self.taken + 1, paces.compared - KEPT + 2, 1)
        steps = np.arange(first, paces.compared + 1, dtype=np.int64)
        self.taken = max(self.taken, paces.compared)  # paces begin anew with a restarted hub
        if not steps.size:
            return
        at, there = steps % STEPS, steps % KEPT
        # Not nanmax, which warns of ranks of which nothing is known.
        late_s = np.fmax.reduce(paces.excess_s[:, there], axis=2, initial=np.nan)
        self.late_s[:, at] = late_s.clip(min=0)
        told = paces.step[:, there] == steps
        count = np.count_nonzero(told, axis=0)
        sums_s = np.where(told, paces.step_s[:, there], 0).sum(axis=0)
        self.step_s[at] = np.where(count, sums_s / np.maximum(count, 1), np.nan)
        self.step[at] = steps

    def columns(self, count: int) -> tuple[list[int], Integers]:
        """The newest steps that were compared, at most ``count``, oldest first; their columns."""
        first = max(1, self.taken - min(count, STEPS) + 1)
        steps = [n for n in range(first, self.taken + 1) if self.step[n % STEPS] == n]
        return steps, np.array([n % STEPS for n in steps], dtype=np.int64)

    # --- a part of the state ------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        known = len(self.late_s)
        if size > known:
            grown: Singles = np.full((size, STEPS), np.nan, dtype=np.float32)
            grown[:known] = self.late_s
            self.late_s = grown

    def forget(self, rank: int) -> None:
        self.late_s[rank] = np.nan

    def forget_all(self) -> None:
        self.late_s[:] = np.nan
        self.step_s[:] = np.nan
        self.step[:] = 0
        self.taken = 0

    def dump(self) -> Any:
        """Nothing of a large world: a restarted hub shows it from then on."""
        if len(self.late_s) > SAVED_RANKS:
            return None
        return {
            "taken": self.taken,
            "step": self.step.tolist(),
            "step_s": self.step_s.astype("<f4").tobytes(),
            # Three digits are enough for a shade.
            "late_s": self.late_s.clip(max=60_000).astype("<f2").tobytes(),
        }

    def load(self, saved: Any) -> None:
        step = msgspec.convert(saved["step"], list[int])
        step_s = np.frombuffer(msgspec.convert(saved["step_s"], bytes), dtype="<f4")
        late_s = np.frombuffer(msgspec.convert(saved["late_s"], bytes), dtype="<f2")
        if len(step) != STEPS or len(step_s) != STEPS or late_s.size != self.late_s.size:
            raise ValueError("rings of another size")
        self.taken = msgspec.convert(saved["taken"], int)
        self.step = np.array(step, dtype=np.int64)
        self.step_s = step_s.astype(np.float32)
        self.late_s = late_s.astype(np.float32).reshape(self.late_s.shape)
