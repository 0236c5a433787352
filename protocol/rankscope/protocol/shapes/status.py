"""The whole run in one document."""

from rankscope.protocol.shapes.base import Shape, State
from rankscope.protocol.shapes.checkpoints import Checkpoint, Resumed
from rankscope.protocol.shapes.finding import Finding
from rankscope.protocol.shapes.ranks import RankRow


class Status(Shape):
    """The whole run in one document: ``rankscope status --json``."""

    run: str
    attempt: int
    world_size: int
    state: State
    step: int
    """The last step completed by every rank that was heard of."""
    verdict: Finding | None
    """The gravest open finding; of a stalled run that has no critical one, what may be why."""
    findings: list[Finding]
    ranks: list[RankRow]
    """All ranks; in a reply to a request with ``since``, those that changed."""
    last_checkpoint: Checkpoint | None
    dropped: int
    """Records dropped by agents plus messages that were sent and never arrived."""
    overhead_s_per_step: float | None
    """The agents' time on the training thread: the mean over ranks."""
    name: str = ""
    stalled_s: float | None = None
    """How long no rank has moved, when that is longer than the run's own patience."""
    exit_code: int | None = None
    """What the launcher's command ended with (128+n for a signal)."""
    full: bool = True
    """False: ``ranks`` holds changes only."""
    control: str = ""
    """One line on the operator's request in work, or on a pause or stop; empty when there is
    none."""
    parity: str = ""
    """One line on whether a restarted run is what it was before; empty when it was not
    restarted."""
    heard: list[int] = []
    """Where it was asked with ``heard``: ranks whose row changed by nothing but that they spoke."""
    heard_ms: list[int] = []
    """How long ago each of them did."""
    stopped: str = ""
    """Of a run that an operator ended: by whom, after which step, and what of it is saved."""
    ending: str = ""
    """Of a run that is not over: which ranks have ended, how the first did, and who has not; empty
    while none has. Of one that has finished: whose last words were not heard, so that it may have
    gone on after ``step``; empty when all were."""
    resumed: Resumed | None = None
