"""Whether memory grows and does not come back: what the memory kinds and the view share.

The slope is that of Tukey's resistant line (J. W. Tukey, Exploratory Data Analysis, 1977): between
the medians of the first and the last third of the readings. It is called growth when the two thirds
do not overlap, the middle third lies between them as on a line (a step up and no more is no
growth), and the rise is well above what readings scatter around that line.
"""

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Growth:
    """Memory of one rank that grows."""

    rank: int
    bytes_per_step: float
    from_step: int
    to_step: int
    from_bytes: int
    to_bytes: int


def growths(state: RunState) -> dict[int, Growth]:
    """Ranks whose memory grows, with the steepest slope of any window."""
    history = state.memory
    size = min(state.size(), len(history.at))
    found: dict[int, Growth] = {}
    for count in WINDOWS:
        steps, values = history.newest(count, size)
        _take(found, np.arange(size), steps.astype(np.float64), values)
    long = np.flatnonzero(history.stride[:size] >= LEAST_STRIDE)
    if long.size:
        _take(
            found, long, *_later_half(history.spans[long].astype(np.float64), history.stride[long])
        )
    return found


def _take(found: dict[int, Growth], ranks: Integers, steps: Floats, values: Floats) -> None:
    third = values.shape[1] // 3
    first, last = values[:, :third], values[:, -third:]
    apart = last.min(axis=1) > first.max(axis=1)  # NaN, which is no reading, makes this false
    rows = np.flatnonzero(apart)
    if not rows.size:
        return
    slopes, rises = _lines(steps[rows], values[rows])
    for at in np.flatnonzero(rises > 0).tolist():
        row = int(rows[at])
        rank = int(ranks[row])
        if rank in found and found[rank].bytes_per_step >= slopes[at]:
            continue
        found[rank] = Growth(
            rank=rank,
            bytes_per_step=float(slopes[at]),
            from_step=int(steps[row, 0]),
            to_step=int(steps[row, -1]),
            from_bytes=int(np.median(values[row, :third])),
            to_bytes=int(values[row, -third:].max()),
        )


def _lines(steps: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Slope and rise of each row; the rise is 0 where it is no growth."""
    third = values.shape[1] // 3
    parts = (slice(0, third), slice(third, -third), slice(-third, None))
    low, mid, high = (np.median(values[:, part], axis=1) for part in parts)
    x_low, x_mid, x_high = (np.median(steps[:, part], axis=1) for part in parts)
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
    return slope, np.where(enough & straight, rise, 0.0)


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
