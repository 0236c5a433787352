"""``gradient-outlier``: a rank's gradient is finite, and far from its past and from its peers."""

import math

from rankscope.hub.diagnose.text import ranks_text
from rankscope.hub.inquiries import PARAMETER_NORMS
from rankscope.hub.state import RunState
from rankscope.hub.state.numerics import Outlier
from rankscope.protocol.shapes import Finding

MAX_FINDINGS = 8
MAX_NAMED = 8


def gradient_outlier(state: RunState, now_s: float) -> list[Finding]:
    """One finding for all ranks that were outliers in the same step."""
    by_step: dict[int, list[Outlier]] = {}
    for one in state.numerics.outliers:
        if one.rank < state.size():
            by_step.setdefault(one.step, []).append(one)
    return [_finding(state, step, by_step[step], now_s) for step in sorted(by_step)[:MAX_FINDINGS]]


def _finding(state: RunState, step: int, ones: list[Outlier], now_s: float) -> Finding:
    ones = sorted(ones, key=lambda one: one.rank)
    ranks = [one.rank for one in ones]
    grown = None
    for one in ones:
        told = state.numerics.parameters.grown(one.rank, step)
        grown = grown or told
        if told is None and state.numerics.complete <= step + 1:
            state.inquiries.want(one.rank, PARAMETER_NORMS)
    first = ones[0]
    usual = first.usual if first.usual else first.peers
    factor = f"{_factor(first.norm / usual)} times " if usual else ""
    whose = "its usual" if first.usual else "that of its peers"
    where: dict[str, str | int] = {"parameter": grown[0]} if grown else {}
    return Finding(
        kind="gradient-outlier",
        severity="warning",
        ranks=ranks,
        victims=[],
        step=step,
        since_s=max(0.0, now_s - first.heard_s),
        headline=f"the gradient of {ranks_text(ranks)} in step {step} is {factor}{whose}"
        + (f", most of it in {grown[0]}" if grown else ""),
        evidence=[_line(one) for one in ones[:MAX_NAMED]]
        + ([f"{grown[0]}: norm {grown[1]:.3g}"] if grown else [])
        + [_times(one) for one in ones[:1] if state.numerics.complete >= step + 3],
        next=f"look at the data rank {first.rank} read for step {step}, and at its parameters: "
        f"rankscope numerics --rank {first.rank}",
        where=where,
    )


def _line(one: Outlier) -> str:
    usual = f"its usual {one.usual:.3g}" if one.usual is not None else "no past yet"
    peers = f", its peers in that step {one.peers:.3g}" if one.peers is not None else ""
    return f"rank {one.rank}: norm {one.norm:.3g} before reduction; {usual}{peers}"


def _times(one: Outlier) -> str:
    if one.times == 1:
        return "it was that one step"
    return f"so in {one.times} steps up to step {one.last_step}"


def _factor(ratio: float) -> str:
    """``9,900``: two figures are enough."""
    if not math.isfinite(ratio) or ratio <= 0:
        return "many"
    digits = max(0, math.floor(math.log10(ratio)) - 1)
    return f"{round(ratio, -digits):,.0f}"
