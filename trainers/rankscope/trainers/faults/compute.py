"""The rank raises, or computes more slowly than the others."""

from rankscope.trainers.faults.hit import Hit
from rankscope.trainers.faults.loader import slower
from rankscope.trainers.faults.truth import place_of


class InjectedError(RuntimeError):
    """What the fault ``exception`` raises."""


def exception(hit: Hit) -> None:
    def strike(phase: str) -> None:
        hit.tell(source=place_of(go_wrong, "raise"), phase=phase)
        go_wrong()

    hit.in_phase(strike)


def go_wrong() -> None:
    raise InjectedError("this fault was asked for")


def slow_forward(hit: Hit) -> None:
    slower(hit, "forward")


def slow_backward(hit: Hit) -> None:
    slower(hit, "backward")


def slow_optimizer(hit: Hit) -> None:
    slower(hit, "optimizer")
