"""What each rank was busy with in its last steps, without its waiting for others.

In synchronous training every rank's step is equally long: who is late works longer and waits less.
So a phase's time is taken without the waiting in it, and compared with what the ranks took for it
in the same step.
"""

import math
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankscope.hub.state.columns import Flags, Integers
from rankscope.protocol import messages as m

KEPT = 32
"""Newest steps of each rank."""

SAVED_RANKS = 256
"""Worlds up to this size have the newest steps in their snapshots: 100 kB."""
SAVED_STEPS = 16
KINDS = {
    "told": "?",
    **dict.fromkeys(("work_s", "excess_s", "usual_s", "waited_s", "step_s"), "<f2"),
}

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
        first = max(self.compared + 1, step - KEPT + 2, 1)
        if step - first >= 1 and self._compared_at_once(live, first, step):
            return
        for one in range(first, step + 1):
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

    def _compared_at_once(self, live: Flags, first: int, last: int) -> bool:
        """The same for several steps of which all ranks have told, as they nearly always have."""
        size = len(live)
        steps = np.arange(first, last + 1, dtype=np.int64)
        at = steps % KEPT
        if not (self.step[:size, at] == steps)[live].all() or np.count_nonzero(live) < 2:
            return False
        work = self.work_s[:size, at][live]
        middle = (len(work) - 1) // 2
        usual = np.partition(work, middle, axis=0)[middle]
        excess = np.full((len(self.step), len(at), PHASES), np.nan, dtype=np.float32)
        excess[:size][live] = work - usual
        self.excess_s[:, at] = excess
        self.usual_s[at] = usual
        self.compared = last
        return True

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
        """The newest compared steps, so that of a run that has ended there is still to be seen who
        was late in what; nothing of a large world: a few steps after a restart it is known again.
        """
        if len(self.step) > SAVED_RANKS or not self.compared:
            return None
        at = self.columns(SAVED_STEPS)
        steps = np.arange(self.compared - len(at) + 1, self.compared + 1)
        return {
            "compared": self.compared,
            "since": [[*key, *value] for key, value in self.since.items()],
            "told": (self.step[:, at] == steps).tobytes(),
            **{
                # Three digits are enough for a median.
                name: getattr(self, name)[..., at, :].clip(max=60_000).astype("<f2").tobytes()
                for name in ("work_s", "excess_s", "usual_s")
            },
            **{
                name: getattr(self, name)[:, at].clip(max=60_000).astype("<f2").tobytes()
                for name in ("waited_s", "step_s")
            },
        }

    def load(self, saved: Any) -> None:
        compared = msgspec.convert(saved["compared"], int)
        count, size = min(SAVED_STEPS, compared), len(self.step)
        parts = {
            name: np.frombuffer(msgspec.convert(saved[name], bytes), dtype=kind)
            for name, kind in KINDS.items()
        }
        shapes = {
            "told": (size, count),
            "work_s": (size, count, PHASES),
            "excess_s": (size, count, PHASES),
            "usual_s": (count, PHASES),
            "waited_s": (size, count),
            "step_s": (size, count),
        }
        since = msgspec.convert(saved.get("since", []), list[tuple[int, int, int, float]])
        fits = all(parts[name].size == math.prod(shapes[name]) for name in shapes)
        if count < 0 or not fits or any(not 0 <= phase < PHASES for _, phase, _, _ in since):
            raise ValueError("rings of another size")
        self.since = {(rank, phase): (step, at_s) for rank, phase, step, at_s in since}
        self.compared = compared
        at = self.columns(count)
        steps = np.arange(compared - count + 1, compared + 1)
        self.step[:, at] = np.where(parts.pop("told").reshape(shapes["told"]), steps, 0)
        for name, values in parts.items():
            ring = getattr(self, name)
            place = (at,) if name == "usual_s" else (slice(None), at)
            ring[place] = values.astype(np.float32).reshape(shapes[name])
