"""Gradients before reduction, and what was not finite."""

from rankscope.protocol.shapes.base import Shape
from rankscope.protocol.shapes.finding import Finding


class SignRow(Shape):
    """One thing that was not finite, where a rank saw it."""

    rank: int
    stage: str
    """``input``, ``parameter``, ``forward``, ``loss``, ``gradient``, ``cast``, ``reduced``,
    ``optimizer`` or ``updated``."""
    step: int
    microbatch: int
    name: str
    value: str
    count: int
    others: int
    note: str


class NumericsRow(Shape):
    """One rank's numbers before reduction."""

    rank: int
    step: int
    local_norm: float | None
    """L2 norm of its own gradient in that step."""
    distance: float | None
    """From its peers and its own past, in robust standard deviations of log norms."""
    norms: list[float | None]
    """For each of the view's ``steps``."""
    loss: float | None
    loss_scale: float | None
    skipped: int
    """Steps without an update since the run began, where that can be seen."""
    signs: int
    """How many steps had one."""
    not_covered: list[str] = []
    """What the agent cannot look at on this rank, in words."""
    large_every: int = 1
    """Its large gradients are read at every so many steps; 1: at every one, as all others are."""


class ParameterRow(Shape):
    name: str
    local_norm: float | None
    value: str
    """``nan`` or ``inf`` where the gradient is not finite, else empty."""


class Numerics(Shape):
    """Gradients before reduction, over time, and what was not finite."""

    run: str
    step: int
    steps: list[int]
    ranks: list[NumericsRow]
    """All ranks, or the worst of a large world; ``left_out`` counts the rest."""
    left_out: int
    signs: list[SignRow]
    """The first ones, in the order of the verdict; newest episode only."""
    findings: list[Finding]
    """The open ones of this field."""
    replicas_checked_step: int | None
    """Up to which step the replicas were compared; None when they never were."""
    replicas_equal: bool | None
    parameters: list[ParameterRow] = []
    """With the argument ``rank``: that rank's parameters, those in trouble first."""
    parameters_step: int | None = None
