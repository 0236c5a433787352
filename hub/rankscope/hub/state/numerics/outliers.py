"""A rank whose gradient leaves its own past and its peers: robust statistics on log norms. Pure.

Healthy norms differ between ranks by factors of 5 to 11 on small batches, all of them may jump
together by as much from one step to the next, and a rank whose labels are all ignored has 0. So a
log norm is taken as the sum of what is usual for the rank (its median), what all ranks do in the
step (the median of what is left), and a rest: the rest is what is judged, by the rests of the past.
What is 0 or not finite is left out.
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


@dataclass(frozen=True)
class Limits:
    """Natural logarithms of factors."""

    least: float
    """However even the past was, less than this is no outlier."""
    above_top: float
    """Over the largest rest of its own past: a rank that had such spikes before is no outlier."""


AMONG_PEERS = Limits(math.log(20.0), math.log(5.0))
ALONE = Limits(math.log(100.0), math.log(5.0))
"""Without peers nothing tells its own spikes from those of the training."""

ABOVE_PEERS_LOG = math.log(5.0)
"""Over the largest of its peers in the same step, those that are outliers themselves left out."""

UNKNOWN_PAST_LOG = math.log(1000.0)
"""Over the largest of its peers in the first steps, when there is no past yet."""

HINT_SHARE = 0.5
"""So much of the way to an outlier, as logarithms go, is worth a look."""

MAD_TO_SD = 1.4826
MAX_SUSPECTS = 64
SAMPLE_RANKS = 512
"""What all ranks do in a step is told by so many of them."""


@dataclass(frozen=True)
class Past:
    """Of each rank's earlier norms, natural logarithms, shape (ranks,); NaN where too few."""

    usual: Logs
    spread: Logs
    """Robust standard deviation of the rests."""
    top: Logs
    """The largest rest."""


def shared_moves(codes: Codes) -> Logs:
    """What all ranks did in each step, shape (steps,): 0 where there are no two to tell."""
    step = max(1, len(codes) // SAMPLE_RANKS)
    values = logs(codes[::step])
    moved = (values - _median(values)[:, None]).T
    several = np.count_nonzero(~np.isnan(moved), axis=1) >= 2
    return np.where(several, np.nan_to_num(_median(moved)), np.float32(0.0))


def past_of(codes: Codes, shared: Logs) -> Past:
    """Statistics of ``codes``, shape (ranks, steps), without what was ``shared`` in each step."""
    values = logs(codes)
    few = np.count_nonzero(~np.isnan(values), axis=1) < LEAST_PAST
    usual = _median(values)
    rests = values - usual[:, None] - shared
    spread = _median(np.abs(rests)) * np.float32(MAD_TO_SD)
    top = np.where(np.isnan(rests), -np.inf, rests).max(axis=1, initial=-np.inf)
    usual[few] = np.nan
    spread[few] = np.nan
    return Past(usual, spread, top.astype(np.float32))


def _median(values: Logs) -> Logs:
    """Of each row, its NaNs left out; NaN where all are. The lower middle one of an even number:
    of two ranks the one that stayed is what all do."""
    if not values.shape[1]:
        return np.full(values.shape[0], np.nan, dtype=np.float32)
    count = np.count_nonzero(~np.isnan(values), axis=1)
    in_order = np.sort(values, axis=1)  # NaN comes last
    found: Logs = in_order[np.arange(len(values)), np.maximum(0, (count - 1) // 2)]
    return found


def distances(now: Logs, past: Past) -> Logs:
    """How far each rank is above its usual norm beyond what all do, in its own deviations.

    For the eye: the deviation counts as at least a factor of 1.35. NaN where not known.
    """
    moved = now - past.usual
    shift = np.nan_to_num(_median(moved[None, :]))[0]
    found: Logs = ((moved - shift) / np.maximum(past.spread, np.float32(0.3))).astype(np.float32)
    return found


def outliers(codes: Codes, past: Past, among: Flags) -> list[int]:
    """The ranks whose norm at one step (``codes``, shape (ranks,)) is an outlier.

    ``among`` are the ranks to be looked at and compared with.
    """
    now = logs(codes)
    now[~among] = np.nan
    known = ~np.isnan(now)
    limits = AMONG_PEERS if np.count_nonzero(known) > 1 else ALONE
    moved = now - past.usual
    least = np.maximum(
        np.maximum(limits.least, DEVIATIONS * past.spread), past.top + limits.above_top
    )
    low = np.nan_to_num(_median(moved[None, :]))[0]
    suspects = np.flatnonzero(moved - min(0.0, low) >= least).tolist()
    suspected = np.zeros(len(now), dtype=np.bool_)
    suspected[suspects] = True
    peers_top = float(now[known & ~suspected].max(initial=-np.inf))
    found = []
    for rank in suspects[:MAX_SUSPECTS]:
        others = moved[np.arange(len(moved)) != rank]
        others = others[~np.isnan(others)]
        shift = float(np.median(others)) if others.size else 0.0
        if float(moved[rank]) - shift >= least[rank] and now[rank] >= peers_top + ABOVE_PEERS_LOG:
            found.append(rank)
    return found or _without_past(now, known, past)


def stands_out(norm: float, rank: int, past: Past) -> bool:
    """Whether one norm may be an outlier, by its own past alone: a hint that it is worth comparing
    the ranks soon. With room for what all of them do; true where there is no past yet."""
    if not 0 < norm < math.inf:
        return norm != 0
    usual = float(past.usual[rank])
    if usual != usual:
        return True
    top = float(past.top[rank]) + AMONG_PEERS.above_top
    least = max(AMONG_PEERS.least, DEVIATIONS * float(past.spread[rank]), top)
    return math.log(norm) - usual >= HINT_SHARE * least


def may_have_outliers(codes: Codes, past: Past, among: Flags) -> Flags:
    """At which of several steps (``codes``, shape (ranks, steps)) there may be an outlier.

    Shape (steps,). All in one go, and it is seldom so.
    """
    now = logs(codes)
    now[~among] = np.nan
    moved = now - past.usual[:, None]
    least = np.maximum(
        np.maximum(AMONG_PEERS.least, DEVIATIONS * past.spread), past.top + AMONG_PEERS.above_top
    )
    low = np.nan_to_num(_median(np.ascontiguousarray(moved.T)))
    suspects = moved - np.minimum(0.0, low) >= least[:, None]
    young = ~np.isnan(now) & np.isnan(past.usual)[:, None]
    may: Flags = (suspects | young).any(axis=0)
    return may


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
