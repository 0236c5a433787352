"""Stacks of all ranks."""

from rankscope.protocol.shapes.base import Shape


class FrameRow(Shape):
    file: str
    line: int
    function: str


class StackGroup(Shape):
    """Ranks whose training threads are in the same place."""

    ranks: list[int]
    frames: list[FrameRow]
    """Innermost first."""
    from_outside: bool
    """Read by the sentinel."""
    source: str
    """The innermost frame of the user's own code."""
    age_s: float
    """As of now; as of the run's end where that has come."""


class StacksView(Shape):
    """Stacks of all ranks, the rarest on top."""

    run: str
    groups: list[StackGroup]
    missing: list[int]
    """Ranks of which there is no stack."""
    notes: list[str]
    threads: dict[str, list[FrameRow]] = {}
    """With the argument ``rank``: all its threads, by name."""
    ended: bool = False
    """Whether the run is over."""
