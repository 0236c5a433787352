"""A rank whose gradient leaves its own past and its peers: robust statistics on log norms. Pure.

Healthy norms differ between ranks by factors of 5 to 11 on small batches, and are 0 where every
label is ignored: so each rank is compared with its own past (median and median absolute deviation
of log norms), what all ranks do together is taken off, and what is 0 or not finite is left out.
"""

import math
from dataclasses import dataclass

import numpy as np

from rankscope.hub.state.columns import Flags
from rankscope.hub.state.numerics.logs import Codes, Logs, logs

LEAST_PAST = 5
"""Norms of its own that a rank is compared with."""

DEVIATIONS = 6.0
"""Robust standard deviations (1.4826 times the median absolute deviation)."""

LEAST_LOG = math.log(100.0)
"""However even the past was, less than this factor is no outlier."""

ABOVE_TOP_LOG = math.log(30.0)
"""Over the largest of its own past: a rank that has had such spikes before is no outlier."""

ABOVE_PEERS_LOG = math.log(10.0)
"""Over the largest of its peers in the same step, those that are outliers themselves left out."""

UNKNOWN_PAST_LOG = math.log(1000.0)
"""Over the largest of its peers in the first steps, when there is no past yet."""

MAD_TO_SD = 1.4826


@dataclass(frozen=True)
class Past:
    """Of each rank's earlier norms, natural logarithms, shape (ranks,); NaN where too few."""

    usual: Logs
    spread: Logs
    """Robust standard deviation."""
    top: Logs
    """The largest that was no outlier."""


def past_of(codes: Codes) -> Past:
    """Statistics of ``codes``, shape (ranks, steps)."""
    values = logs(codes)
    count = np.count_nonzero(~np.isnan(values), axis=1)
    usual = _median(values, count)
    deviation = np.abs(values - usual[:, None])
    spread = _median(deviation, count) * np.float32(MAD_TO_SD)
    ordinary = np.where(values <= (usual + LEAST_LOG)[:, None], values, -np.inf)
    top = ordinary.max(axis=1, initial=-np.inf)
    few = count < LEAST_PAST
    usual[few] = np.nan
    spread[few] = np.nan
    return Past(usual, spread, top.astype(np.float32))


def _median(values: Logs, count: "np.ndarray[tuple[int, ...], np.dtype[np.intp]]") -> Logs:
    """Of each row, its NaNs left out; NaN where all are. The lower middle one of an even number."""
    if not values.shape[1]:
        return np.full(values.shape[0], np.nan, dtype=np.float32)
    in_order = np.sort(values, axis=1)  # NaN comes last
    middle = np.maximum(0, (count - 1) // 2)
    found: Logs = in_order[np.arange(len(values)), middle]
    return found


def distances(now: Logs, past: Past) -> Logs:
    """How far each rank is above its usual norm beyond what all do, in its own deviations.

    For the eye: the deviation counts as at least a factor of 1.35. NaN where not known.
    """
    moved = now - past.usual
    known = np.sort(moved[~np.isnan(moved)])
    # The lower middle one: of two ranks the one that stayed is what all do.
    shift = known[(len(known) - 1) // 2] if known.size else np.float32(0.0)
    return ((moved - shift) / np.maximum(past.spread, np.float32(0.3))).astype(np.float32)


def outliers(codes: Codes, past: Past, among: Flags) -> list[int]:
    """The ranks whose norm at one step (``codes``, shape (ranks,)) is an outlier.

    ``among`` are the ranks to be looked at and compared with.
    """
    now = logs(codes)
    now[~among] = np.nan
    known = ~np.isnan(now)
    moved = now - past.usual
    suspects = np.flatnonzero(
        (moved >= np.maximum(LEAST_LOG, DEVIATIONS * past.spread))
        & (now >= past.top + ABOVE_TOP_LOG)
    ).tolist()
    found = []
    suspected = np.zeros(len(now), dtype=np.bool_)
    suspected[suspects] = True
    peers_top = float(now[known & ~suspected].max(initial=-np.inf))
    for rank in suspects:
        others = known.copy()
        others[rank] = False
        moves = moved[others]
        moves = moves[~np.isnan(moves)]
        shift = max(0.0, float(np.median(moves))) if moves.size else 0.0
        beyond = float(moved[rank]) - shift
        if (
            beyond >= max(LEAST_LOG, DEVIATIONS * float(past.spread[rank]))
            and now[rank] >= peers_top + ABOVE_PEERS_LOG
        ):
            found.append(rank)
    return found or _without_past(now, known, past)


def _without_past(now: Logs, known: Flags, past: Past) -> list[int]:
    """In the first steps: one rank far above all others."""
    young = known & np.isnan(past.usual)
    if not young.any() or np.count_nonzero(known) < 2:
        return []
    rank = int(np.argmax(np.where(known, now, -np.inf)))
    others = known.copy()
    others[rank] = False
    top = float(now[others].max())
    return [rank] if young[rank] and float(now[rank]) >= top + UNKNOWN_PAST_LOG else []
