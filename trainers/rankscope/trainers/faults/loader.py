"""The rank's data comes late, never, or ends before that of the others."""

import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from rankscope.trainers.faults.hit import Hit
from rankscope.trainers.faults.truth import place_of
from rankscope.trainers.launch import leave

SLOW_S = 0.3
SLOW_STEPS = 0.4
"""By how much a slow phase is longer, unless told otherwise: seconds, and the steps before, of
whichever is more. On a busy machine 0.3 s may be next to nothing."""


def loader_stuck(hit: Hit) -> None:
    def strike(phase: str) -> None:
        hit.tell(source=place_of(wait_for_data, ".wait()"), phase=phase)
        wait_for_data()

    hit.in_phase(strike, default="data")


def wait_for_data() -> None:
    threading.Event().wait()


def loader_slow(hit: Hit) -> None:
    slower(hit, "data")


def slower(hit: Hit, phase: str) -> None:
    """``phase`` takes longer on the rank, from the step on."""
    points = hit.site.points
    ends_s: list[float] = []

    def strike() -> None:
        if points.step >= hit.spec.step:
            time.sleep(float(hit.spec.where or longer_s(ends_s)))

    def ended() -> None:
        if points.step < hit.spec.step:
            ends_s.append(time.monotonic())

    if hit.here:
        points.on("end", ended)
        points.once(phase, hit.spec.step, lambda: hit.tell(phase=phase))
        points.on(phase, strike)


def longer_s(ends_s: Sequence[float]) -> float:
    """How much longer a phase takes after steps that ended at ``ends_s``."""
    steps_s = [later - sooner for sooner, later in pairwise(ends_s)]
    return max(SLOW_S, SLOW_STEPS * median(steps_s)) if steps_s else SLOW_S


def data_exhausted(hit: Hit) -> None:
    """Its loader ends, and it leaves the step loop as if training were over."""

    def strike() -> None:
        hit.tell(source=place_of(leave, "dist.barrier()"))
        hit.site.points.data_over = True

    if hit.here:
        hit.site.points.once("data", hit.spec.step, strike)
