"""How much memory each rank took, step by step: the newest steps, and the whole run in few numbers.

Of a GPU it is the peak of what was allocated, which does not depend on the moment in a step at
which it is read; of a CPU the resident set without files and shared memory, which does: of several
readings in a step the largest is kept.
"""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankscope.hub.state.columns import Floats, Integers
from rankscope.protocol import messages as m

NEWEST = 32
"""Steps with a reading that are kept one by one."""

BUCKETS = 64
"""The whole run is kept in at most this many equally long spans of steps."""

RISEN_BYTES, RISEN_SHARE = 1 << 20, 1 / 1024
"""More than both (the second of what was taken) is more than a little."""

WARM_STEPS = 5
"""Allocators, caches and gradients come into being in the first steps: that is no growth."""


def measured_bytes(memory: m.Memory) -> int:
    """The quantity that is followed."""
    if memory.peak_allocated_bytes is not None:
        return memory.peak_allocated_bytes
    return memory.resident_bytes if memory.anonymous_bytes is None else memory.anonymous_bytes


class MemoryHistory:
    """Columns by rank; a part of the state."""

    def __init__(self) -> None:
        self.steps: Integers = np.zeros((0, NEWEST), dtype=np.int64)
        """Of the newest readings; a ring whose newest is at ``at``."""
        self.bytes: Floats = np.zeros((0, NEWEST))
        """NaN: no reading."""
        self.at: Integers = np.zeros(0, dtype=np.int64)
        self.spans: NDArray[np.float32] = np.zeros((0, BUCKETS), dtype=np.float32)
        """The largest reading in each span of ``stride`` steps; NaN: none."""
        self.stride: Integers = np.ones(0, dtype=np.int64)

    def reading(self, rank: int, step: int, start_step: int, memory: m.Memory) -> bool:
        """Take in one reading after ``step`` was completed; whether it rose by more than a little
        since the one before."""
        value = float(measured_bytes(memory))
        since = step - start_step
        if since < 1:
            return False
        self._span(rank, since - 1, value)
        if since <= WARM_STEPS:
            return False
        at = int(self.at[rank])
        before = float(self.bytes[rank, at])
        rose = value - before >= max(RISEN_BYTES, RISEN_SHARE * before)
        if step == self.steps[rank, at] and value == value:
            if not value <= before:
                self.bytes[rank, at] = value
            return rose
        at = (at + 1) % NEWEST
        self.at[rank] = at
        self.steps[rank, at] = step
        self.bytes[rank, at] = value
        return rose

    def _span(self, rank: int, index: int, value: float) -> None:
        while index // int(self.stride[rank]) >= BUCKETS:
            spans = self.spans[rank]
            spans[: BUCKETS // 2] = np.fmax(spans[0::2], spans[1::2])
            spans[BUCKETS // 2 :] = np.nan
            self.stride[rank] *= 2
        bucket = index // int(self.stride[rank])
        if not value <= self.spans[rank, bucket]:
            self.spans[rank, bucket] = value

    def newest(self, ranks: Integers) -> tuple[Integers, Floats]:
        """Steps and bytes of the newest readings of ``ranks``, oldest first, a row each."""
        order = (self.at[ranks, None] + 1 + np.arange(NEWEST)) % NEWEST
        rows = ranks[:, None]
        return self.steps[rows, order], self.bytes[rows, order]

    def last_bytes(self, size: int) -> Floats:
        """The newest reading of each rank; NaN: none."""
        last: Floats = self.bytes[np.arange(size), self.at[:size]]
        return last

    def rose_by(self, size: int) -> Floats:
        """How far the largest of the newest readings is above the least of them; NaN: none."""
        kept = self.bytes[:size]
        rose: Floats = np.fmax.reduce(kept, axis=1) - np.fmin.reduce(kept, axis=1)
        return rose

    # --- a part of the state ------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        known = len(self.at)
        if size <= known:
            return
        before = (self.steps, self.bytes, self.at, self.spans, self.stride)
        self.steps = np.zeros((size, NEWEST), dtype=np.int64)
        self.bytes = np.full((size, NEWEST), np.nan)
        self.at = np.zeros(size, dtype=np.int64)
        self.spans = np.full((size, BUCKETS), np.nan, dtype=np.float32)
        self.stride = np.ones(size, dtype=np.int64)
        after: tuple[NDArray[Any], ...] = (
            *(self.steps, self.bytes, self.at, self.spans, self.stride),
        )
        for old, new in zip(before, after, strict=True):
            new[:known] = old

    def forget(self, rank: int) -> None:
        self._clear(rank)

    def forget_all(self) -> None:
        self._clear(slice(None))

    def _clear(self, where: int | slice) -> None:
        self.steps[where] = 0
        self.bytes[where] = np.nan
        self.at[where] = 0
        self.spans[where] = np.nan
        self.stride[where] = 1

    def dump(self) -> Any:
        """The whole run; the newest readings soon come again."""
        return {
            "spans": self.spans.astype("<f4").tobytes(),
            "stride": self.stride.astype("<i8").tobytes(),
        }

    def load(self, saved: Any) -> None:
        spans = np.frombuffer(msgspec.convert(saved["spans"], bytes), dtype="<f4")
        stride = np.frombuffer(msgspec.convert(saved["stride"], bytes), dtype="<i8")
        if spans.size != self.spans.size or stride.size != self.stride.size:
            raise ValueError("a history of memory of other ranks")
        if (stride < 1).any():
            raise ValueError("spans of no steps")
        self.spans = spans.reshape(self.spans.shape).astype(np.float32)
        self.stride = stride.astype(np.int64)
