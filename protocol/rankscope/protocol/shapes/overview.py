"""The run without its ranks: its nodes, its pace, its newest steps."""

from rankscope.protocol.shapes.base import Link, Shape, State
from rankscope.protocol.shapes.checkpoints import Checkpoint, Resumed
from rankscope.protocol.shapes.finding import Finding


class History(Shape):
    """The newest completed steps of the run, oldest first; the lists are equally long."""

    step: list[int] = []
    loss: list[float | None] = []
    step_s: list[float | None] = []


class Gpu(Shape):
    index: int
    name: str
    utilisation_percent: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    temperature_c: float | None
    power_w: float | None
    sm_clock_mhz: float | None
    throttle_reasons: list[str]
    ecc_uncorrected: int | None
    nvlink_errors: int | None


class Node(Shape):
    """One machine of the run."""

    host: str
    ranks: list[int]
    sentinel: Link
    """``down`` also when none was ever heard of."""
    gpus: list[Gpu] = []
    gpu_note: str = ""
    stack_note: str = ""
    memory_peak_bytes: int | None = None
    memory_available_bytes: int | None = None
    memory_limit_bytes: int | None = None
    load_1min: float | None = None


class NodesInShort(Shape):
    """All machines of a large run together, where they are too many to be told one by one."""

    count: int
    gpus: int = 0
    gpu_utilisation_percent: float | None = None
    """The mean of those that tell."""
    gpu_temperature_c: float | None = None
    """The warmest."""
    without_sentinel: int = 0
    """Nodes whose sentinel is silent or was never heard of; ``hosts`` names the first of them."""
    hosts: list[str] = []
    notes: dict[str, int] = {}
    """Why readings are missing, in words, and on how many nodes."""


class Overview(Shape):
    """The run without its ranks: what the first screen shows above and below the grid."""

    run: str
    name: str
    trainer: str
    device: str
    attempt: int
    world_size: int
    state: State
    step: int
    up_s: float
    """Since the run directory was made, to now or to the run's end. It never goes back."""
    stalled_s: float | None
    data_age_s: float | None
    """Age of the newest message from any rank."""
    steps_per_s: float | None
    """Over the steps of the last 10 s, or the last five where they take longer; falls to 0 when
    no more come. Of an ended run the mean of its last steps."""
    step_s: float | None
    """Median over the last steps; ``step_spread_s`` is half their interquartile range."""
    step_spread_s: float | None
    tokens_per_s: float | None
    loss: float | None
    grad_norm: float | None
    phase_s: dict[str, float]
    """Mean seconds a step: ``data``, ``forward``, ``backward``, ``optimizer``, ``other``."""
    memory_peak_bytes: int | None
    """The largest of any rank."""
    overhead_s_per_step: float | None
    dropped: int
    bad_frames: int
    hub_restarts: int
    healthy_s: float | None
    """How long there has been no finding above ``info``; None while there is one."""
    findings: dict[str, int]
    """Open findings by severity."""
    incidents: int
    """In the incident log; one that opened and closed is one."""
    verdict: Finding | None
    last_checkpoint: Checkpoint | None
    exit_code: int | None
    nodes: list[Node]
    history: History
    hub_note: str = ""
    """What is wrong with the hub itself, such as a full disk; empty when nothing is."""
    ended_s: float | None = None
    """When the run ended, hub clock (Unix time); None while it goes on."""
    control: str = ""
    """One line on the operator's request in work, or on a pause or stop; empty when there is
    none."""
    nodes_in_short: NodesInShort | None = None
    """In place of ``nodes`` when there are more of them than the request's argument ``nodes``."""
    parity: str = ""
    """One line on whether a restarted run is what it was before; empty when it was not
    restarted."""
    possible: dict[str, str] = {}
    """For each command on the run why it would be refused now; empty when it would be accepted.
    Empty altogether where a hub does not say."""
    launcher_pid: int | None = None
    """Of the ``rankscope run`` that started the run: SIGTERM to it ends the run, whatever its ranks
    hang in. None where there is none that lives."""
    launcher_host: str = ""
    ending: str = ""
    """As in ``Status``."""
    resumed: Resumed | None = None
    launcher_gone: bool = False
    """There was one, and it was killed: the command it started goes on, and what reaches that
    terminal reaches nobody."""
