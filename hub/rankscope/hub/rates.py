"""Speed of the run from its completed steps."""

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from rankscope.hub.state.history import StepEntry
from rankscope.hub.state.ranks import PHASES

RECENT = 20
"""Steps over which durations, tokens and phases are taken."""

ODD = 5.0
"""A step that takes so many medians says nothing of the others."""

WINDOW_S = 10.0
LEAST = 5
NEWS_S = 1.0
"""News of a completed step may be this old when it comes."""
FADE_S = 5.0
"""A run that has stopped falls to 0 within this time, or within three of its steps."""

Steps = Sequence[tuple[int, StepEntry]]


def steps_per_s(
    steps: Steps, now_s: float | None, pauses: Sequence[tuple[float, float]] = ()
) -> float | None:
    """Completed steps a second; ``now_s`` is None for a run that has ended.

    It is taken over all steps of the last ``WINDOW_S`` before the newest one (over the last
    ``LEAST`` where they took longer) and is the mean over their own span. While a step is overdue
    it falls, in proportion to its delay, to 0. None before two steps of an attempt are known.
    ``pauses`` are from when to when the ranks stood still because an operator wanted it: no time
    goes by in them.
    """
    done_s = [_without(pauses, at_s) for at_s in _done_s(steps)]
    now_s = None if now_s is None else _without(pauses, now_s)
    if len(done_s) < 2:
        return None
    last_s = done_s[-1]
    begin_s = min(last_s - WINDOW_S, done_s[-LEAST:][0])
    window_s = [at_s for at_s in done_s if at_s >= begin_s]
    span_s = last_s - window_s[0]
    if span_s <= 0:
        return None
    rate = (len(window_s) - 1) / span_s
    if now_s is None:
        return rate
    overdue_s = now_s - last_s - 2 / rate - NEWS_S
    return rate * min(1.0, max(0.0, 1.0 - overdue_s / max(FADE_S, 3 / rate)))


def _without(pauses: Sequence[tuple[float, float]], at_s: float) -> float:
    """The time ``at_s`` on a clock that stood in ``pauses``."""
    return at_s - sum(max(0.0, min(end_s, at_s) - begin_s) for begin_s, end_s in pauses)


def _done_s(steps: Steps) -> list[float]:
    """When the steps of the newest attempt were completed, ascending."""
    if not steps:
        return []
    attempt = steps[-1][1].attempt
    times = (entry.done_s for _, entry in steps if entry.attempt == attempt)
    return sorted(at_s for at_s in times if np.isfinite(at_s))


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
    """Mean seconds a step and rank in each phase; empty before the first step.

    A step that took many times as long as usual (a rank was stopped, a save stood in the way) is
    left out: it tells of itself, and would hide for ``RECENT`` steps how the others are.
    """
    usual_s, _ = step_s(steps)
    entries = [
        entry
        for _, entry in steps[-RECENT:]
        if entry.ranks and (usual_s is None or not (entry.mean_step_s() or 0.0) > ODD * usual_s)
    ]
    ranks = sum(entry.ranks for entry in entries)
    if not ranks:
        return {}
    return {
        phase: sum(getattr(entry, f"{phase}_s") for entry in entries) / ranks for phase in PHASES
    }
