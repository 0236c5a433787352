"""Process groups over their ranks, live and from dump files."""

from rankscope.protocol.shapes.base import Shape
from rankscope.protocol.shapes.finding import Finding


class CollectiveRow(Shape):
    """One process group over its ranks."""

    group: str
    description: str
    backend: str
    size: int
    enqueued_least: int
    enqueued_most: int
    completed_least: int
    behind: list[int]
    """Ranks that have not entered what others have."""
    waiting: list[int]
    """Ranks that entered the newest collective and are still in it."""
    operation: str
    """What the pending one is: ``gloo:all_reduce [1024] float32``; empty when not known."""
    source: str


class Collectives(Shape):
    run: str
    groups: list[CollectiveRow]
    findings: list[Finding]
    operations: list[dict[str, str | int | float | None]] = []
    """With the argument ``rank``: its newest, oldest first, with the fields of the wire."""
    note: str = ""


class Analysis(Shape):
    """What dump files of flight recorders tell: ``analyze --json`` prints it."""

    world_size: int
    ranks: list[int]
    """Ranks whose dump was read."""
    missing: list[int]
    """Ranks that left none, or none that can be read."""
    findings: list[Finding]
    groups: list[CollectiveRow]
    notes: list[str]
    """Files that were passed over, and why."""
