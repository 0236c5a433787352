"""A finding: what every verdict is."""

from rankscope.protocol.shapes.base import Severity, Shape


class Finding(Shape):
    """One thing that is wrong, with who is to blame and what to do next."""

    kind: str
    severity: Severity
    ranks: list[int]
    """Culprits; empty when none is to blame."""
    victims: list[int]
    step: int | None
    since_s: float
    headline: str
    evidence: list[str]
    next: str
    where: dict[str, str | int] = {}
    """``parameter``, ``module``, ``microbatch``, ``phase``, ``collective``, ``source``; fields
    that do not apply are left out."""


SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
"""From mild to grave."""

HANGS = frozenset(
    {
        "collective-mismatch",
        "collective-stuck",
        "gil-held",
        "group-deadlock",
        "loader-stalled",
        "missing-collective",
        "uneven-data",
    }
)
"""Kinds that say why ranks do not move."""

STANDS = HANGS | {"rank-stopped"}
"""Of a run that does not move by itself any more: what whoever has enough of it ends it for."""
