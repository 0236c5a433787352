"""What a drill did to a run, and what was found."""

from rankscope.protocol.shapes.base import Shape
from rankscope.protocol.shapes.finding import Finding


class Injected(Shape):
    """What a drill did to the run."""

    ranks: list[int]
    step: int | None
    kind: str
    where: dict[str, str | int]


class DrillRow(Shape):
    """One fault of a drill and what was found: ``drill --json`` prints a list of these."""

    fault: str
    injected: Injected
    found: Finding | None
    latency_s: float | None
    exact: bool
    note: str = ""
    """In words, why it is not exact, or why nothing was injected; empty when there is no more to
    say."""
    after_step_s: float | None = None
    """From the end of the fault's step to the first sight of the finding; 0 where it was found in
    that step. Null of a fault that lasts, and of one that keeps its step from ending."""
