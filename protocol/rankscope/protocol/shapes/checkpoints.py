"""The view of checkpoints: saves in work, what came of those before, and requests."""

from rankscope.protocol.shapes.base import Shape
from rankscope.protocol.shapes.control import Command, Paused
from rankscope.protocol.shapes.parity import Parity


class Checkpoint(Shape):
    """The newest that there is to go back to."""

    step: int
    path: str
    verified: bool
    resumed: bool = False
    """This run was resumed from it, and has saved none since."""
    notfinite: str = ""
    """What its parameters hold that is not finite, in words; empty when nothing is known of."""
    finite_step: int | None = None
    """Where it does: the step of the newest one that does not."""


class Resumed(Shape):
    """What the ranks go on from; None in its place for a run that began at step 1."""

    step: int
    """After which they go on."""
    path: str
    """Of the checkpoint; empty where that is not known (one of the program's own)."""


class SaveRow(Shape):
    """How far one rank is in a save."""

    rank: int
    step: int
    request: int
    phase: str
    """``staging``, ``waiting``, ``writing``, ``syncing`` or ``publishing``."""
    phase_s: float
    done_bytes: int
    total_bytes: int
    rate_bytes_per_s: float | None


class SaveOutcome(Shape):
    """What came of one save."""

    step: int
    request: int
    """The operator's request; 0 for a save that nobody asked for."""
    ok: bool
    age_s: float
    path: str
    text: str
    rank: int | None
    """Where it failed, if it was in one rank."""
    phase: str
    size_bytes: int
    notfinite: str = ""
    """As of a checkpoint."""


class CheckpointsView(Shape):
    run: str
    pending: str
    """How far the request in work is, in words; empty when there is none."""
    request: int
    """Its number; 0 when there is none."""
    ranks: list[SaveRow]
    """Those in a save."""
    left_out: int
    slowest: int | None
    """The rank that is least far."""
    outcomes: list[SaveOutcome]
    """The newest first."""
    last: Checkpoint | None
    command: Command | None = None
    """The operator's request in work."""
    commands: list[Command] = []
    """Those that are over, refused ones among them; the newest first."""
    paused: Paused | None = None
    possible: dict[str, str] = {}
    """For each command: empty when it would be accepted now, else why not, in words."""
    note: str = ""
    """As ``control`` in ``status``."""
    parity: Parity | None = None
    """None when there was no restart, or nothing to compare yet."""
    as_of_s: float | None = None
    """The moment that all ages here are counted to, hub clock: the end of a run that has ended."""
    resumed: Resumed | None = None
