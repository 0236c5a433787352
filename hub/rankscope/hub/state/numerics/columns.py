"""What step records say of each rank's numbers, by column; steps in rings that all ranks share."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rankscope.hub.state.columns import (
    COUNT,
    FLAG,
    FLOAT,
    INDEX,
    Columns,
    Field,
    Flags,
    Floats,
    Integers,
)
from rankscope.hub.state.numerics import logs
from rankscope.protocol import messages as m

NORM_STEPS = logs.CODE_RING.width
"""Steps of which each rank's norm is kept."""

PAST_STEPS = 32
"""Steps that say what is usual for a rank: longer, and a falling gradient makes it coarse."""

RECENT = 16
"""Steps of which fingerprints and updates are kept: until all ranks have told theirs."""

LATE_STEPS = 3
"""A value that comes off a device late comes within so many steps."""

NO_FINGERPRINT = -1
UNSEEN, SKIPPED, UPDATED = 0, 1, 2


class NumericColumns(Columns):
    """One element a rank; cleared when an attempt begins."""

    FIELDS: ClassVar[Mapping[str, Field]] = {
        "norms": logs.CODE_RING,
        "norm": FLOAT,
        "norm_step": COUNT,
        "late": FLAG,
        "fingerprints": Field("i4", NO_FINGERPRINT, RECENT),
        "updates": Field("i1", UNSEEN, RECENT),
        "ever_updated": FLAG,
        "skipped": COUNT,
        "idle": COUNT,
        "loss_scale": FLOAT,
        "bad_steps": COUNT,
        "last_bad_step": COUNT,
        "bad_stages": COUNT,
        "compared": Field("i4", NO_FINGERPRINT),
        "twin": INDEX,
        "twin_steps": COUNT,
        "twin_since": COUNT,
    }
    norms: logs.Codes
    """By step modulo ``NORM_STEPS``; whose step is ``steps.numbers``."""
    norm: Floats
    """The newest one known, exact; of step ``norm_step``."""
    norm_step: Integers
    late: Flags
    """Whether its values come off a device after their step's record."""
    fingerprints: NDArray[np.int32]
    """Folded to 31 bits: two ranks must agree in several steps before it is said."""
    updates: NDArray[np.int8]
    ever_updated: Flags
    skipped: Integers
    """Steps without an update."""
    idle: Integers
    """The same, in a row up to now."""
    loss_scale: Floats
    """NaN: this rank was never seen to scale its loss."""
    bad_steps: Integers
    """Steps in which something was not finite."""
    last_bad_step: Integers
    bad_stages: Integers
    """Bits of the stages that were bad in ``last_bad_step``."""
    compared: NDArray[np.int32]
    """The fingerprint that was compared with the others' last."""
    twin: Integers
    """The lowest rank that had the same data in the newest steps; -1: none."""
    twin_steps: Integers
    twin_since: Integers

    def __init__(self) -> None:
        super().__init__()
        self.steps = StepRing(NORM_STEPS)
        self.recent = StepRing(RECENT)

    def record(self, rank: int, record: m.StepRecord) -> None:
        """Take over the numbers of one completed step."""
        step = record.step
        if record.local_norm is not None:
            self.local_norm(rank, step, record.local_norm)
        if record.loss_scale is not None:
            self.cells.loss_scale[rank] = record.loss_scale
        fingerprint, updated = record.fingerprint, record.updated
        if fingerprint is None and updated is None:
            return
        cells = self.cells
        slot = self._recent_slot(step)
        if slot is not None and fingerprint is not None:
            cells.fingerprints[rank, slot] = (fingerprint ^ fingerprint >> 32) & 0x7FFFFFFF
        if updated is None:
            return
        if slot is not None:
            cells.updates[rank, slot] = UPDATED if updated else SKIPPED
        if updated:
            cells.ever_updated[rank] = True
            cells.idle[rank] = 0
        else:
            cells.skipped[rank] += 1
            cells.idle[rank] += 1

    def local_norm(self, rank: int, step: int, norm: float) -> None:
        cells = self.cells
        slot = step % NORM_STEPS
        known = self.steps.numbers[slot]
        if known != step:
            if known > step:
                return
            self.norms[:, slot] = logs.UNKNOWN
            self.steps.numbers[slot] = step
        cells.norms[rank, slot] = logs.encoded(norm)
        if step >= cells.norm_step[rank]:
            cells.norm[rank] = norm
            cells.norm_step[rank] = step

    def _recent_slot(self, step: int) -> int | None:
        slot = step % RECENT
        known = self.recent.numbers[slot]
        if known != step:
            if known > step:
                return None
            self.fingerprints[:, slot] = NO_FINGERPRINT
            self.updates[:, slot] = UNSEEN
            self.recent.numbers[slot] = step
        return slot

    def norms_at(self, step: int) -> logs.Codes | None:
        """The codes of all ranks at ``step``; None when it is kept no more, or was never told."""
        slot = self.steps.slot(step)
        return None if slot is None else self.norms[:, slot]

    def past(self, step: int) -> logs.Codes:
        """The codes of steps before ``step``, shape (ranks, at most PAST_STEPS), oldest first."""
        order = sorted((n, slot) for slot, n in enumerate(self.steps.numbers) if 0 <= n < step)
        return self.norms[:, [slot for _, slot in order[-PAST_STEPS:]]]

    def reset(self) -> None:
        self.clear()
        self.steps.clear()
        self.recent.clear()

    def dump(self) -> dict[str, Any]:
        return super().dump() | {"steps": self.steps.numbers, "recent": self.recent.numbers}

    def load(self, saved: Mapping[str, Any]) -> None:
        super().load(saved)
        self.steps.load(saved["steps"])
        self.recent.load(saved["recent"])


class StepRing:
    """Which step each slot of a ring is of; -1: of none."""

    def __init__(self, size: int) -> None:
        self.numbers = [-1] * size

    def slot(self, step: int) -> int | None:
        """The slot of ``step``; None when it has none."""
        slot = step % len(self.numbers)
        return slot if self.numbers[slot] == step else None

    def clear(self) -> None:
        self.numbers = [-1] * len(self.numbers)

    def load(self, saved: Any) -> None:
        """Raises ValueError for what ``numbers`` never is."""
        if len(saved) != len(self.numbers) or not all(isinstance(n, int) for n in saved):
            raise ValueError("a ring of another size")
        self.numbers = list(saved)
