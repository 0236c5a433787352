"""What each rank was busy with in its last steps, without its waiting for others.

In synchronous training every rank's step is equally long: who is late works longer and waits less.
So a phase's time is taken without the waiting in it, and compared with what the ranks took for it
in the same step.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.hub.state.columns import Flags, Integers
from rankscope.protocol import messages as m

KEPT = 32
"""Newest steps of each rank."""

PHASES = 5
"""Data, forward, backward, optimizer, other."""

Singles = NDArray[np.float32]


class Paces:
    """Rings by rank; the step ``n`` is in column ``n % KEPT``. A part of the state."""

    def __init__(self) -> None:
        self.step: Integers = np.zeros((0, KEPT), dtype=np.int64)
        self.work_s: Singles = np.zeros((0, KEPT, PHASES), dtype=np.float32)
        """Seconds of each phase without waiting; with it where that is not known."""
        self.waited_s: Singles = np.zeros((0, KEPT), dtype=np.float32)
        """Waiting in the whole step; NaN where that is not known."""
        self.step_s: Singles = np.zeros((0, KEPT), dtype=np.float32)
        self.excess_s: Singles = np.zeros((0, KEPT, PHASES), dtype=np.float32)
        """Work beyond what the ranks usually took in that step; NaN where not compared."""
        self.usual_s: Singles = np.zeros((KEPT, PHASES), dtype=np.float32)
        """What they usually took."""
        self.compared = 0
        """The newest step that was compared."""
        self.since: dict[tuple[int, int], tuple[int, float]] = {}
        """(rank, phase) that is slow at the moment: since which step and time. The diagnosis keeps
        it."""

    def record(self, record: m.StepRecord, rank: int) -> None:
        """Take in one completed step."""
        at = record.step % KEPT
        took: tuple[float, ...] = (
            record.data_s,
            record.forward_s,
            record.backward_s,
            record.optimizer_s,
            record.other_s,
        )
        waited = record.waited_s
        if len(waited) == PHASES:
            took = tuple(max(0.0, all_s - wait) for all_s, wait in zip(took, waited, strict=True))
            self.waited_s[rank, at] = sum(waited)
        else:
            self.waited_s[rank, at] = np.nan
        self.step[rank, at] = record.step
        self.work_s[rank, at] = took
        self.step_s[rank, at] = record.step_s

    def compare(self, live: Flags, step: int) -> None:
        """Compare the ``live`` ranks, shape (ranks,), in all steps up to ``step`` that were not."""
        size = len(live)
        for one in range(max(self.compared + 1, step - KEPT + 2, 1), step + 1):
            at = one % KEPT
            here = live & (self.step[:size, at] == one)
            work = self.work_s[:size, at][here]
            self.excess_s[:, at] = np.nan
            self.compared = one
            if len(work) < 2:
                continue
            # The lower of the two in the middle: of two ranks the faster one.
            middle = (len(work) - 1) // 2
            usual = np.partition(work, middle, axis=0)[middle]
            self.usual_s[at] = usual
            excess = np.full((size, PHASES), np.nan, dtype=np.float32)
            excess[here] = work - usual
            self.excess_s[:size, at] = excess

    def columns(self, count: int) -> Integers:
        """The columns of the ``count`` newest compared steps, oldest first."""
        first = max(1, self.compared - count + 1)
        return np.arange(first, self.compared + 1, dtype=np.int64) % KEPT

    # --- a part of the state ------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        known = len(self.step)
        if size <= known:
            return
        for name in ("step", "work_s", "waited_s", "step_s", "excess_s"):
            old = getattr(self, name)
            fill = 0 if name == "step" else np.nan
            new = np.full((size, *old.shape[1:]), fill, dtype=old.dtype)
            new[:known] = old
            setattr(self, name, new)

    def forget(self, rank: int) -> None:
        self.step[rank] = 0
        self.excess_s[rank] = np.nan
        self.since = {key: value for key, value in self.since.items() if key[0] != rank}

    def forget_all(self) -> None:
        self.step[:] = 0
        self.excess_s[:] = np.nan
        self.compared = 0
        self.since.clear()

    def dump(self) -> Any:
        """Nothing: a few steps after a restart it is known again."""
        return None

    def load(self, saved: Any) -> None:
        pass
