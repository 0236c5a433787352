"""What came of comparing a restarted run with what it was before, in words."""

import math

from rankscope.hub.state import RunState
from rankscope.hub.state.parity import LOSS, Difference, Parity, loss_of
from rankscope.protocol import shapes


def parity(state: RunState) -> shapes.Parity | None:
    """Of the present attempt; None when there was no restart, or nothing to compare yet."""
    known = state.parity
    if known.other_world is not None:
        before, now = known.other_world
        text = f"parity: not compared, as there were {before} ranks then and there are {now} now"
        return shapes.Parity(text=text, over=True)
    if not known.first:
        return None
    steps = known.complete()
    found = known.difference
    over = known.over()
    return shapes.Parity(
        text=f"parity: {_words(known, steps, over)}",
        over=over,
        steps=len(steps),
        first_step=steps[0] if steps else None,
        last_step=steps[-1] if steps else None,
        batches=len(known.batches.intersection(steps)),
        difference=None if found is None else _difference(found),
    )


def parity_line(state: RunState) -> str:
    """The same in one line; empty when there is nothing to say."""
    known = parity(state)
    return "" if known is None else known.text


def parity_entry(state: RunState, now_s: float) -> tuple[shapes.Finding, int] | None:
    """What is to stand in the incident log, and of which attempt, once it is known."""
    known = parity(state)
    if known is None or not (known.over or state.parity.settled()):
        return None
    found = known.difference
    step = found.step if found is not None else known.last_step
    finding = shapes.Finding(
        kind="parity",
        severity="info",
        ranks=[] if found is None else [found.rank],
        victims=[],
        step=step,
        since_s=0.0,
        headline=known.text,
        evidence=[f"data compared in {known.batches} of these steps"] if known.steps else [],
        next=""
        if found is None
        else "compare what is seeded and saved: data order, random numbers, dropout, kernels that "
        "add up in any order (torch.use_deterministic_algorithms)",
    )
    return finding, state.attempt


def _words(known: Parity, steps: list[int], over: bool) -> str:
    count = len(steps)
    if known.difference is not None:
        before = f"; {_steps(count)} before it bitwise equal" if count else ""
        return f"first differs at step {known.difference.step}: {_how(known.difference)}{before}"
    if not count:
        return "no loss to compare" if over else f"step {known.first} is awaited from all ranks"
    span = f"{steps[0]} to {steps[-1]}" if count > 1 else str(steps[0])
    return f"{_steps(count)} bitwise equal ({span})" + ("" if over else " so far")


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"


def _how(found: Difference) -> str:
    if found.what != LOSS:
        return f"rank {found.rank} got another batch"
    before, now = loss_of(found.before), loss_of(found.now)
    text = f"rank {found.rank} has loss {now:.9g}, before it was {before:.9g}"
    if math.isfinite(before) and math.isfinite(now) and f"{before:.9g}" == f"{now:.9g}":
        text += f" (they differ by {abs(now - before):.1e})"
    return text


def _difference(found: Difference) -> shapes.ParityDifference:
    if found.what == LOSS:
        before: float | str = loss_of(found.before)
        now: float | str = loss_of(found.now)
    else:
        before, now = f"{found.before:016x}", f"{found.now:016x}"
    return shapes.ParityDifference(
        step=found.step, rank=found.rank, what=found.what, before=before, now=now
    )
