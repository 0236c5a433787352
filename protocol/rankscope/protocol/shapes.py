"""The shapes of views and reports: what clients get, and what ``--json`` prints.

They travel as MessagePack maps inside a ``ViewReply`` and are printed as JSON by
:mod:`rankscope.protocol.jsontext`. Keys are only ever added. None means unknown. Ages (``*_s``)
are as of the reply's ``hub_s``; a client that keeps a row adds the hub time gone since.
"""

from typing import Literal

import msgspec

State = Literal["starting", "running", "paused", "stalled", "finished", "failed"]
Severity = Literal["info", "warning", "critical"]
Link = Literal["up", "silent", "down"]


class Shape(msgspec.Struct, kw_only=True):
    """Base of all shapes: a map with its fields' names."""


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


class Checkpoint(Shape):
    step: int
    path: str
    verified: bool


class Command(Shape):
    """What an operator asked for, in work or over."""

    request: int
    """Its number; 0 when it was refused at once."""
    command: str
    """``checkpoint``, ``checkpoint-and-stop``, ``stop``, ``pause``, ``resume`` or ``cancel``."""
    author: str
    """Who asked; ``a signal on rank 3`` where it was no operator."""
    age_s: float
    """Since it was asked for; None of the times below runs before that."""
    state: str
    """In work: ``waiting`` (for all ranks to hear of it), ``agreeing``, ``agreed`` (on ``step``),
    ``arrived``, ``paused``, ``saving``. Over: ``done``, ``refused``, ``given-up``, ``cancelled``.
    """
    text: str
    """In words: what it waits for, or what came of it."""
    step: int | None = None
    """The boundary that the ranks agreed on: the step it comes after."""
    ended_age_s: float | None = None
    """Since it was over; None while it is in work."""


class Paused(Shape):
    """The ranks stand at a boundary because an operator wanted it."""

    request: int
    author: str
    step: int
    """The step it comes after."""
    since_s: float
    expires_s: float | None
    """How long until it ends by itself."""
    ranks: list[int]
    """Those that stand there."""


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


class Status(Shape):
    """The whole run in one document: ``rankscope status --json``."""

    run: str
    attempt: int
    world_size: int
    state: State
    step: int
    """The last step completed by every rank that was heard of."""
    verdict: Finding | None
    """The gravest open finding."""
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


class StacksView(Shape):
    """Stacks of all ranks, the rarest on top."""

    run: str
    groups: list[StackGroup]
    missing: list[int]
    """Ranks of which there is no stack."""
    notes: list[str]
    threads: dict[str, list[FrameRow]] = {}
    """With the argument ``rank``: all its threads, by name."""


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


class ParityDifference(Shape):
    """Where a run that went on is not what it was before."""

    step: int
    rank: int
    what: str
    """``loss``; or ``batch`` when the rank was given other data."""
    before: float | str
    """The loss; of a batch its fingerprint, in hexadecimal."""
    now: float | str


class Parity(Shape):
    """Whether the losses and the data of an attempt are those of the attempts before, bit for bit.

    Compared are the steps that both have told; of data those that are fingerprinted.
    """

    text: str
    """In one line: ``parity: 12 steps bitwise equal (13 to 24)``."""
    over: bool = False
    """Nothing more will be compared."""
    steps: int = 0
    """Equal on all ranks, before the first difference."""
    first_step: int | None = None
    last_step: int | None = None
    batches: int = 0
    """Steps among them whose data were compared, too."""
    difference: ParityDifference | None = None


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


class StepAnomaly(Shape):
    """A step that stands out from those before it."""

    step: int
    what: str
    """``slow step``, ``loss jump`` or ``loss not finite``."""
    value: float | None
    """Seconds of a slow step; else the loss."""
    usual: float | None
    """The median of the steps before."""


class StepsRow(Shape):
    """How one rank keeps pace with the others. Seconds are medians a step over the last steps."""

    rank: int
    host: str
    work_s: float | None
    """Its whole step without waiting in collectives, as far as that is known."""
    waited_s: float | None
    late_s: float | None
    """How much more than usual it works in the phase in which it is most behind."""
    phase: str
    """That phase; empty when it is not behind."""
    factor: float | None
    """What it takes for that phase, over what ranks usually take."""
    late_percent: list[int | None]
    """For each of the view's ``late_steps``: work beyond the usual, in percent of the step."""


class StepsView(Shape):
    """The newest steps over time: phases, waiting, what stands out, and who is late."""

    run: str
    step: int
    steps: list[int]
    """Completed by all ranks, oldest first; the lists that follow are equally long."""
    step_s: list[float | None]
    loss: list[float | None]
    phase_s: dict[str, list[float]]
    """Mean seconds over ranks: ``data``, ``forward``, ``backward``, ``optimizer``, ``other``."""
    waited_s: list[float | None]
    """Of these, waiting in collectives."""
    anomalies: list[StepAnomaly]
    late_steps: list[int]
    ranks: list[StepsRow]
    """All ranks, or those of a large world that are most behind."""
    left_out: int
    findings: list[Finding]
    """The open ones of this field."""
    rank_steps: list[int] = []
    """With the argument ``rank``: that rank's newest steps, and the same of them."""
    rank_phase_s: dict[str, list[float]] = {}
    """Work only, without waiting, where that is known."""
    rank_waited_s: list[float | None] = []


class Injected(Shape):
    """What a drill did to the run."""

    ranks: list[int]
    step: int | None
    kind: str
    where: dict[str, str | int]


class DrillRow(Shape):
    """One fault of a drill and what was found: ``drill --json`` prints a list of these."""

    fault: str
    injected: Injected
    found: Finding | None
    latency_s: float | None
    exact: bool
    note: str = ""
    """In words, why it is not exact, or why nothing was injected; empty when there is no more to
    say."""
    after_step_s: float | None = None
    """From the end of the fault's step to the first sight of the finding; 0 where it was found in
    that step. Null of a fault that lasts, and of one that keeps its step from ending."""


class Moment(Shape):
    """When a finding opened."""

    at_s: float
    """Hub clock (Unix time)."""
    severity: Severity
    kind: str
    headline: str


class Recording(Shape):
    """What there is to go back to. Only a hub that serves a recording has this view."""

    first_s: float
    """The time of its first record, hub clock: what was before has been dropped."""
    last_s: float
    growing: bool
    """The run goes on."""
    moments: list[Moment] = []
    """Of the incident log, oldest first; they may be older than ``first_s``."""


VIEWS: dict[str, type[Shape]] = {
    "status": Status,
    "overview": Overview,
    "rank": RankDetail,
    "incidents": Incidents,
    "numerics": Numerics,
    "stacks": StacksView,
    "collectives": Collectives,
    "memory": MemoryView,
    "checkpoints": CheckpointsView,
    "steps": StepsView,
    "recording": Recording,
}
"""The views this version serves. ``rank`` needs the argument ``rank``; ``numerics``, ``stacks``,
``collectives`` and ``steps`` take it."""

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
"""From mild to grave."""
