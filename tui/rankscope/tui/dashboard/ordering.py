"""In which orders ranks can be listed. Pure."""

import math
from collections.abc import Callable, Sequence

from rankscope.protocol.shapes import RankRow
from rankscope.tui.dashboard.picture import Picture

TONES = {"bad": 0, "warn": 1, "quiet": 2, "good": 3}

Key = Callable[[RankRow], float]


def _largest(value: float | None) -> float:
    """Not finite first, then the largest; what is not known comes last."""
    if value is None:
        return math.inf
    return -value if math.isfinite(value) else -math.inf


ORDERS: tuple[str, ...] = (
    *("rank", "state", "in step", "for", "a step", "peak", "loss", "‖g‖", "heard"),
)
"""Titles of the columns by which the table can be sorted; the first is how it begins."""


def ordered(
    rows: Sequence[RankRow], places: Sequence[int], order: str, picture: Picture
) -> Sequence[int]:
    """``places`` among ``rows``, what is worth a look first; equal ones by their place."""
    key = _key(order, picture)
    return places if key is None else sorted(places, key=lambda at: key(rows[at]))


def _key(order: str, picture: Picture) -> Key | None:
    keys: dict[str, Key] = {
        "state": lambda row: TONES[picture.mark(row.rank).tone],
        "in step": lambda row: row.step,
        "for": lambda row: _largest(row.phase_s),
        "a step": lambda row: _largest(row.step_s),
        "peak": lambda row: _largest(row.memory_peak_bytes),
        "loss": lambda row: _largest(row.loss),
        "‖g‖": lambda row: _largest(row.grad_norm),
        "heard": lambda row: _largest(row.heard_s),
    }
    return keys.get(order)


def following(order: str) -> str:
    """The order after ``order``, around."""
    return ORDERS[(ORDERS.index(order) + 1) % len(ORDERS)]
