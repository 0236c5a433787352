"""The incident log."""

from typing import Literal

from rankscope.protocol.shapes.base import Shape
from rankscope.protocol.shapes.checkpoints import Checkpoint
from rankscope.protocol.shapes.control import Command
from rankscope.protocol.shapes.finding import Finding


class Incident(Shape):
    """One line of the incident log: a finding as it opened or closed."""

    id: str
    event: Literal["opened", "closed"]
    at_s: float
    """Hub clock, Unix time."""
    attempt: int
    finding: Finding
    """Of kind ``command`` where ``command`` is not None."""
    last_checkpoint: Checkpoint | None = None
    command: Command | None = None
    """An operator's request: ``opened`` when it was made, ``closed`` with what came of it."""


class Incidents(Shape):
    incidents: list[Incident]
