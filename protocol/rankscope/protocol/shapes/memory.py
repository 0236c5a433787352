"""The memory of each rank, and where it is going."""

from rankscope.protocol.shapes.base import Shape
from rankscope.protocol.shapes.finding import Finding


class MemoryRow(Shape):
    rank: int
    host: str
    resident_bytes: int | None
    peak_resident_bytes: int | None
    allocated_bytes: int | None
    reserved_bytes: int | None
    peak_allocated_bytes: int | None
    limit_bytes: int | None
    """What it may use: the device's memory, or the cgroup's or process's limit on a CPU."""
    growth_bytes_per_step: float | None
    """Robust slope over the last steps; None before there are enough."""
    full_at_step: int | None
    """When it will reach its limit if it goes on growing like this."""
    history_bytes: list[int]
    state_bytes: int | None = None
    """Parameters, gradients and optimizer state that the rank holds."""
    predicted_state_bytes: float | None = None
    """The same by the table of memory (``rankscope budget``)."""


class MemoryView(Shape):
    run: str
    steps: list[int]
    ranks: list[MemoryRow]
    left_out: int
    findings: list[Finding]
    prediction: str = ""
    """What is predicted, in words: how many parameters, of how many bytes, spread how."""
