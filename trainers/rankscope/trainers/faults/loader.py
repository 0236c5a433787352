"""The rank's data comes late, never, or ends before that of the others."""

import threading
import time

from rankscope.trainers.faults.hit import Hit
from rankscope.trainers.faults.truth import place_of
from rankscope.trainers.launch import leave

SLOW_S = 0.3
"""By how much a slow phase is longer, unless told otherwise."""


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
    seconds = float(hit.spec.where or SLOW_S)
    points = hit.site.points

    def strike() -> None:
        if points.step >= hit.spec.step:
            time.sleep(seconds)

    if hit.here:
        points.once(phase, hit.spec.step, lambda: hit.tell(phase=phase))
        points.on(phase, strike)


def data_exhausted(hit: Hit) -> None:
    """Its loader ends, and it leaves the step loop as if training were over."""

    def strike() -> None:
        hit.tell(source=place_of(leave, "dist.barrier()"))
        hit.site.points.data_over = True

    if hit.here:
        hit.site.points.once("data", hit.spec.step, strike)
