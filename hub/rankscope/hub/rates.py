"""Speed of the run from its completed steps."""

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from rankscope.hub.state.history import StepEntry
from rankscope.hub.state.ranks import PHASES

RECENT = 20
"""Steps over which speeds are taken."""

Steps = Sequence[tuple[int, StepEntry]]


def steps_per_s(steps: Steps, now_s: float) -> float | None:
    """Completed steps a second over the newest ones; falls to 0 when no more come.

    None before two steps are known.
    """
    done_s = [entry.done_s for _, entry in steps[-RECENT:] if np.isfinite(entry.done_s)]
    if len(done_s) < 2 or done_s[-1] <= done_s[0]:
        return None
    rate = (len(done_s) - 1) / (done_s[-1] - done_s[0])
    age_s = now_s - done_s[-1]
    if age_s * rate <= 3.0 + rate:  # within three steps and a second
        return rate
    # No step for long: what is left of the rate in a window as long as that silence.
    window_s = max(10.0, 5.0 / rate)
    return sum(1 for at_s in done_s if now_s - at_s <= window_s) / window_s


def step_s(steps: Steps) -> tuple[float | None, float | None]:
    """Median of the step times in seconds, and half their interquartile range."""
    values = [entry.mean_step_s() for _, entry in steps[-RECENT:]]
    known = [value for value in values if value is not None and np.isfinite(value)]
    if not known:
        return None, None
    low, middle, high = np.percentile(known, (25, 50, 75))
    return float(middle), float(high - low) / 2


def tokens_per_step(steps: Steps) -> float | None:
    """Tokens of all ranks together, a step."""
    known = [float(entry.tokens) for _, entry in steps[-RECENT:] if entry.token_ranks]
    return fmean(known) if known else None


def phase_means_s(steps: Steps) -> dict[str, float]:
    """Mean seconds a step and rank in each phase; empty before the first step."""
    entries = [entry for _, entry in steps[-RECENT:] if entry.ranks]
    ranks = sum(entry.ranks for entry in entries)
    if not ranks:
        return {}
    return {
        phase: sum(getattr(entry, f"{phase}_s") for entry in entries) / ranks for phase in PHASES
    }
