"""One rank: its line among the others, and everything known of it."""

from rankscope.protocol.shapes.base import Link, Shape


class RankRow(Shape, gc=False):  # never part of a cycle, and there are thousands
    """One rank's line."""

    rank: int
    host: str
    pid: int | None
    step: int
    """The last completed step."""
    phase: str
    """``starting``, ``data``, ``forward``, ``backward``, ``optimizer``, ``other`` or ``ended``."""
    phase_s: float | None
    """How long it has been in that phase."""
    link: Link
    step_s: float | None
    loss: float | None
    grad_norm: float | None
    memory_peak_bytes: int | None
    """Allocated on the device; on a CPU the resident peak."""
    local_rank: int | None = None
    microbatch: int = 0
    process: str = "unknown"
    """``alive``, ``stopped``, ``ended`` or ``unknown``, as the node's sentinel sees it."""
    ended: str = ""
    """How the process ended, in words: ``exit 0``, ``SIGKILL``, ``SIGKILL (OOM)``."""
    heard_s: float | None = None
    """Age of the last message from it."""
    tokens_per_s: float | None = None
    dropped: int = 0
    missed: int = 0
    """Messages it numbered that never arrived."""
    probes_off: list[str] = []
    expecting: str = ""
    """What it is in that may take long, such as ``evaluation``; empty when nothing."""


class GroupRow(Shape):
    """One process group as one rank sees it; -1 where there was no such collective yet."""

    group: str
    description: str
    backend: str
    size: int
    ranks: list[int]
    last_enqueued: int
    last_started: int
    last_completed: int


class RankDetail(Shape):
    """Everything known of one rank."""

    row: RankRow
    facts: dict[str, str]
    trainer: str
    device: str
    groups: list[GroupRow]
    phase_s: dict[str, float]
    step_s_history: list[float]
    """The newest steps, oldest first."""
    memory: dict[str, int | None]
    """The fields of the wire's ``Memory``."""
    cpu_s: float | None
    resident_bytes: int | None
    hub_offset_s: float | None
    hub_offset_error_s: float | None
    probe_faults: dict[str, str]
    exception: str
    """The traceback it sent, if it raised."""
