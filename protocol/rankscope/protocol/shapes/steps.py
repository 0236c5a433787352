"""The newest steps over time, and who is late."""

from rankscope.protocol.shapes.base import Shape
from rankscope.protocol.shapes.finding import Finding


class StepAnomaly(Shape):
    """A step that stands out from those before it; of losses that are not finite, one after the
    other, the first."""

    step: int
    what: str
    """``slow step``, ``loss jump`` or ``loss not finite``."""
    value: float | None
    """Seconds of a slow step; else the loss."""
    usual: float | None
    """The median of the steps before."""
    began_step: int | None = None
    """Of a loss that is not finite: the step in which an open finding says that it began."""


class StepsRow(Shape):
    """How one rank keeps pace with the others. Seconds are medians a step over the last steps."""

    rank: int
    host: str
    work_s: float | None
    """Its whole step without waiting in collectives, as far as that is known."""
    waited_s: float | None
    late_s: float | None
    """How much more than usual it works in the phase in which it is most behind; None where it is
    not compared with others, or over too few steps yet."""
    phase: str
    """That phase; empty when it is not behind."""
    factor: float | None
    """What it takes for that phase, over what ranks usually take."""
    late_percent: list[int | None]
    """For each of the view's ``late_steps``: work beyond the usual, in percent of the step."""


class StepsView(Shape):
    """The newest steps over time: phases, waiting, what stands out, and who is late."""

    run: str
    step: int
    steps: list[int]
    """Completed by all ranks, oldest first; the lists that follow are equally long."""
    step_s: list[float | None]
    loss: list[float | None]
    phase_s: dict[str, list[float]]
    """Mean seconds over ranks: ``data``, ``forward``, ``backward``, ``optimizer``, ``other``."""
    waited_s: list[float | None]
    """Of these, waiting in collectives."""
    anomalies: list[StepAnomaly]
    late_steps: list[int]
    ranks: list[StepsRow]
    """All ranks, or those of a large world that are most behind."""
    left_out: int
    findings: list[Finding]
    """The open ones of this field."""
    rank_steps: list[int] = []
    """With the argument ``rank``: that rank's newest steps, and the same of them."""
    rank_phase_s: dict[str, list[float]] = {}
    """Work only, without waiting, where that is known."""
    rank_waited_s: list[float | None] = []
