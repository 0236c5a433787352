"""``straggler``: a rank that works longer than the others in one phase, while they wait for it.

Not by step time, which is the same for all ranks that meet in collectives, but by the work in each
phase without its waiting (``state.paces``). A rank is slow in a phase when it took clearly longer
than ranks usually did in nearly all of the last steps: noise, and work that is uneven from batch to
batch, hits now this rank and now that.
"""

from dataclasses import dataclass

import numpy as np

from rankscope.hub.diagnose.straggling_causes import causes, wants_a_core
from rankscope.hub.diagnose.text import PHASE_WORDS, in_phase, ranks_text
from rankscope.hub.liveness import live
from rankscope.hub.state import RunState
from rankscope.hub.state.columns import Flags, Integers
from rankscope.protocol.messages import Phase
from rankscope.protocol.shapes import Finding

WINDOW = 10
"""Steps that are looked at."""

SLOW_STEPS = 8
"""In so many of them it must have been slow,"""

STILL_SLOW_STEPS = 5
"""and in so many to be called so still."""

LEAST_SHARE = 0.15
LEAST_S = 0.005
"""Slow is to take this share of a step longer than usual, and this long."""

FELT_SHARE = 0.5
"""The others wait for at least this share of it, else nobody is held up."""

STEADY_STEPS = 30
STEADY_S = 20.0
"""What has lasted so long is no passing disturbance."""

GRAVE_SHARE = 0.4
GRAVE_S = 3.0
"""Or more than this share of each step is spent on waiting for it, for this long."""

PASSING_S = 60.0
"""What other programs on a node take from a rank mostly passes: so long it is a notice."""

WARM_STEPS = 5
MAX_NAMED = 16
MAX_EVIDENCE = 4

WORDS = tuple(PHASE_WORDS[phase] for phase in (
    Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.OTHER,
))  # fmt: skip
DATA, FORWARD, BACKWARD, OPTIMIZER, OTHER = range(5)


@dataclass(frozen=True)
class Slow:
    """A rank that is slow in a phase."""

    rank: int
    phase: int
    excess_s: float
    takes_s: float
    usual_s: float
    since_step: int
    since_s: float


def straggler(state: RunState, now_s: float) -> list[Finding]:
    """One finding for each phase in which ranks are slow."""
    there = live(state)
    ranks = state.ranks
    if there.sum() < 2:
        return []
    done = int(ranks.recorded[: len(there)][there].min())
    state.paces.compare(there, done)
    columns = state.paces.columns(WINDOW)
    start = int(ranks.start_step[: len(there)][there].max())
    if len(columns) < SLOW_STEPS or done - start < WARM_STEPS + SLOW_STEPS:
        return []
    steps_s = state.paces.step_s[: len(there)][:, columns][there]
    known = steps_s[~np.isnan(steps_s)]
    if not known.size:  # of ranks that all began anew, nothing is known of the steps before
        return []
    step_s = float(np.median(known))
    slow = _slow_ranks(state, columns, step_s, len(there), now_s)
    found = []
    for phase in range(len(WORDS)):
        here = [one for one in slow if one.phase == phase]
        if here:
            found.append(_finding(state, here, step_s, np.flatnonzero(there).tolist(), now_s))
    return found


def _slow_ranks(
    state: RunState, columns: Integers, step_s: float, size: int, now_s: float
) -> list[Slow]:
    paces = state.paces
    excess = paces.excess_s[:size][:, columns]
    least_s = max(LEAST_S, LEAST_SHARE * step_s)
    steps = (excess >= least_s).sum(axis=1)
    is_slow = steps >= SLOW_STEPS
    for rank, phase in list(paces.since):
        if rank < size and steps[rank, phase] >= STILL_SLOW_STEPS:
            is_slow[rank, phase] = True
        else:
            del paces.since[rank, phase]
    if not is_slow.any():
        return []
    slow = []
    waits = _others_wait_s(state, columns, is_slow.any(axis=1))
    for rank, phase in np.argwhere(is_slow).tolist():
        excess_s = float(np.nanmedian(excess[rank, :, phase]))
        if not _is_felt(state, phase, excess_s, waits):
            continue
        first = paces.since.setdefault(
            (rank, phase), _since(state, rank, phase, least_s, step_s, now_s)
        )
        slow.append(
            Slow(
                rank,
                phase,
                excess_s,
                float(np.nanmedian(paces.work_s[rank, columns, phase])),
                float(np.median(paces.usual_s[columns, phase])),
                *first,
            )
        )
    return _main_phase(slow)


def _others_wait_s(state: RunState, columns: Integers, slow: Flags) -> float:
    """How long a rank that is not slow waits in a step; NaN where that is not known."""
    waited = state.paces.waited_s[: len(slow)][:, columns][~slow]
    known = waited[~np.isnan(waited)]
    return float(np.median(known)) if known.size and 2 * known.size >= waited.size else float("nan")


def _is_felt(state: RunState, phase: int, excess_s: float, waits_s: float) -> bool:
    """Whether the others wait for it. Where that is not known, only phases count in which there is
    no waiting."""
    if waits_s == waits_s:
        return waits_s >= FELT_SHARE * excess_s
    return phase in (DATA, OPTIMIZER) or (phase == FORWARD and _is_ddp(state))


def _is_ddp(state: RunState) -> bool:
    identities = state.words.identities.values
    known = state.ranks.identity[state.ranks.identity >= 0]
    return bool(known.size) and identities[int(known[0])].trainer == "ddp"


def _main_phase(slow: list[Slow]) -> list[Slow]:
    """Of each rank the phase in which it loses most."""
    most: dict[int, Slow] = {}
    for one in slow:
        if one.rank not in most or one.excess_s > most[one.rank].excess_s:
            most[one.rank] = one
    return sorted(most.values(), key=lambda one: one.rank)


def _since(
    state: RunState, rank: int, phase: int, least_s: float, step_s: float, now_s: float
) -> tuple[int, float]:
    """The first of the steps in a row in which it was slow, and about when that was."""
    paces = state.paces
    first = step = paces.compared
    missed = 0
    while step > max(0, paces.compared - len(paces.usual_s) + 2) and missed < 2:
        slow = paces.excess_s[rank, step % len(paces.usual_s), phase] >= least_s
        first, missed = (step, 0) if slow else (first, missed + 1)
        step -= 1
    return first, now_s - (paces.compared - first) * step_s


def _finding(
    state: RunState, slow: list[Slow], step_s: float, there: list[int], now_s: float
) -> Finding:
    worst = max(slow, key=lambda one: one.excess_s)
    ranks = [one.rank for one in slow]
    since = min(one.since_step for one in slow)
    lasts_s = now_s - min(one.since_s for one in slow)
    steady = state.paces.compared - since >= STEADY_STEPS and lasts_s >= STEADY_S
    share = worst.excess_s / step_s
    grave = share >= GRAVE_SHARE and lasts_s >= GRAVE_S
    crowded = all(wants_a_core(state, one.rank, one.excess_s, step_s) for one in slow)
    if crowded:
        steady, grave = steady and lasts_s >= PASSING_S, False
    phase = WORDS[worst.phase]
    usual = max(worst.usual_s, 1e-4)
    return Finding(
        kind="straggler",
        severity="warning" if steady or grave else "info",
        ranks=ranks,
        victims=sorted(set(there) - set(ranks)),
        step=None,  # it lasts: one incident, not one a step
        since_s=max(0.0, lasts_s),
        headline=f"{ranks_text(ranks)} {'is' if len(ranks) == 1 else 'are'} slow "
        f"{in_phase(phase)}: "
        f"{time_text(worst.takes_s)} where others take {time_text(worst.usual_s)} "
        f"({times(worst.takes_s / usual)}), {share:.0%} of each step, "
        f"{'steady' if steady else 'so far'} since step {since}",
        evidence=[
            f"rank {one.rank}: {time_text(one.takes_s)} of work {in_phase(phase)}, "
            f"{time_text(one.excess_s)} more than usual, since step {one.since_step}"
            for one in slow[:MAX_EVIDENCE]
        ]
        + _waiting(state, ranks, there)
        + [line for one in slow[:MAX_EVIDENCE] for line in causes(state, one.rank)],
        next=f"see what else runs on {state.host(worst.rank)}: top"
        if crowded
        else f"see what it does there: rankscope stacks --rank {worst.rank}",
        where={"phase": phase},
    )


def _waiting(state: RunState, slow: list[int], there: list[int]) -> list[str]:
    """How long they wait in a step, and how long the others do."""
    columns = state.paces.columns(WINDOW)
    others = [rank for rank in there if rank not in set(slow)]
    told = []
    for ranks in (slow[:MAX_NAMED], others):
        waited = state.paces.waited_s[ranks][:, columns]
        known = waited[~np.isnan(waited)]
        if known.size:
            text = time_text(float(np.median(known)))
            told.append(f"{ranks_text(ranks)} {'waits' if len(ranks) == 1 else 'wait'} {text}")
    return [f"in each step, {', '.join(told)}"] if len(told) == 2 else []


def time_text(seconds: float) -> str:
    """``0.35 s``, ``12 ms``."""
    if seconds >= 0.1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.001 else f"{seconds * 1e3:.1f} ms"


def times(factor: float) -> str:
    """``1.7×``; beyond a hundred the digits mean nothing."""
    return f"{factor:.1f}×" if factor < 99.95 else "over 100×"
