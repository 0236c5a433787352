"""Whether memory grows and does not come back: what the memory kinds and the view share.

The slope is that of Tukey's resistant line (J. W. Tukey, Exploratory Data Analysis, 1977): between
the medians of the first and the last third of the readings. It is called growth when the two thirds
do not overlap, the middle third lies between them as on a line (a step up and no more is no
growth), and the rise is well above what readings scatter around that line.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from rankscope.hub.state import RunState
from rankscope.hub.state.columns import Floats, Integers
from rankscope.hub.state.memory import BUCKETS, NEWEST, WARM_STEPS

WINDOWS = (9, 18, NEWEST)
"""Newest readings that are looked at: few for what grows fast, more for what is slow or noisy."""

LEAST_BYTES = 16 << 20
LEAST_SHARE = 0.02
"""The least rise that is called growth: this much, and this share of what it was."""

LEAST_SCATTERS = 2.5
"""How many times the range of the scatter the rise has to be."""

MIDDLE_SHARE = 0.35
"""How near to the line the middle third has to lie: this share of the rise is below and above."""

LEAST_STRIDE = 4
"""The whole run is looked at once a span of it has so many steps; before, it is the newest ones."""


class Growth(NamedTuple):
    """Memory of one rank that grows."""

    rank: int
    bytes_per_step: float
    from_step: int
    to_step: int
    from_bytes: int
    to_bytes: int


class Growths:
    """All ranks whose memory grows, as columns, ascending by rank."""

    def __init__(self, size: int) -> None:
        self._slope: Floats = np.zeros(size)
        """Bytes a step, shape (size,); 0 for ranks that do not grow."""
        self._seen: Floats = np.zeros((size, 4))
        """First and last step, first and last bytes of the window that tells."""

    @property
    def ranks(self) -> list[int]:
        return np.flatnonzero(self._slope).tolist()

    @property
    def slopes(self) -> Floats:
        """Of all ranks, in bytes a step."""
        return self._slope

    def steepest(self, count: int) -> list[Growth]:
        """Those that grow fastest."""
        order = np.argsort(-self._slope, kind="stable")[:count]
        return [self._of(rank) for rank in order.tolist() if self._slope[rank] > 0]

    def get(self, rank: int) -> Growth | None:
        return self._of(rank) if rank < len(self._slope) and self._slope[rank] > 0 else None

    def without(self, ranks: Iterable[int]) -> "Growths":
        """The others."""
        left = Growths(len(self._slope))
        left._slope, left._seen = self._slope.copy(), self._seen
        left._slope[list(ranks)] = 0.0
        return left

    def _of(self, rank: int) -> Growth:
        first, last, low, high = (int(value) for value in self._seen[rank].tolist())
        return Growth(rank, self._slope.item(rank), first, last, low, high)

    def take(self, ranks: Integers, steps: Floats, values: Floats) -> None:
        """Add those of ``ranks`` whose ``values`` (one row each) grow, unless they are known."""
        third = values.shape[1] // 3
        first, last = values[:, :third], values[:, -third:]
        # NaN, which is no reading, makes this false.
        apart = last.min(axis=1) > first.max(axis=1)
        rows = np.flatnonzero(apart & (self._slope[ranks] == 0))
        if not rows.size:
            return
        slopes, rises, low = _lines(steps[rows], values[rows])
        grows = rises > 0
        rows, here = rows[grows], ranks[rows[grows]]
        self._slope[here] = slopes[grows]
        self._seen[here] = np.stack(
            [steps[rows, 0], steps[rows, -1], low[grows], values[rows, -third:].max(axis=1)],
            axis=1,
        )


def growths(state: RunState) -> Growths:
    """Ranks whose memory grows, with the slope in the shortest window that tells."""
    history = state.memory
    size = min(state.size(), len(history.at))
    found = Growths(size)
    moved = np.flatnonzero(history.rose_by(size) >= LEAST_BYTES)
    if moved.size:
        steps, values = history.newest(moved)
        for count in WINDOWS:
            found.take(moved, steps[:, -count:].astype(np.float64), values[:, -count:])
    long = np.flatnonzero(history.stride[:size] >= LEAST_STRIDE)
    if long.size:
        found.take(long, *_later_half(history.spans[long].astype(np.float64), history.stride[long]))
    return found


def _lines(steps: Floats, values: Floats) -> tuple[Floats, Floats, Floats]:
    """Slope, rise and beginning of each row; the rise is 0 where it is no growth."""
    third = values.shape[1] // 3
    parts = (slice(0, third), slice(third, -third), slice(-third, None))
    low, mid, high = (_middle(values[:, part]) for part in parts)
    x_low, x_mid, x_high = (_middle_of_sorted(steps[:, part]) for part in parts)
    rise = high - low
    slope = rise / np.maximum(1.0, x_high - x_low)
    scatter = values - (mid[:, None] + slope[:, None] * (steps - x_mid[:, None]))
    spread = scatter.max(axis=1) - scatter.min(axis=1)
    share = np.clip((mid - low) / np.where(rise > 0, rise, 1.0), 0.0, 1.0)
    expected = (x_mid - x_low) / np.maximum(1.0, x_high - x_low)
    straight = (share >= MIDDLE_SHARE * expected / 0.5) & (
        1.0 - share >= MIDDLE_SHARE * (1.0 - expected) / 0.5
    )
    enough = (rise >= LEAST_BYTES) & (rise >= LEAST_SHARE * low)
    enough &= rise >= LEAST_SCATTERS * spread
    return slope, np.where(enough & straight, rise, 0.0), low


def _middle(values: Floats) -> Floats:
    """The median of each row, the lower one of two."""
    place = (values.shape[1] - 1) // 2
    found: Floats = np.partition(values, place, axis=1)[:, place]
    return found


def _middle_of_sorted(steps: Floats) -> Floats:
    return steps[:, (steps.shape[1] - 1) // 2]


def _later_half(spans: Floats, stride: Integers) -> tuple[Floats, Floats]:
    """The newest quarter of the spans, that is between a quarter and half of the run.

    The last span is still being filled and is left out.
    """
    count = BUCKETS // 4
    filled = np.where(np.isnan(spans), -1, np.arange(BUCKETS)).max(axis=1)
    index = filled[:, None] - count + np.arange(count)
    inside = index >= WARM_STEPS  # of at least four steps each
    values = np.take_along_axis(spans, np.maximum(index, 0), axis=1)
    values[~inside] = np.nan
    return (index + 1.0) * stride[:, None], values
