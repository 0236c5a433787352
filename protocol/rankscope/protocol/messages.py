"""The typed messages of the wire. SPEC.md is the authority; this file is its Python form.

Every message is a MessagePack array whose fields stand in the order below. A field is only ever
added at the end, with a default, so that older and newer peers read each other.

Times called ``t_s`` are the sender's own monotonic clock in seconds: they are compared with each
other, never with another machine's. Sizes are bytes, durations seconds.
"""

from enum import IntEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from rankscope.protocol import limits

Rank = Annotated[int, Meta(ge=0, lt=limits.MAX_WORLD_SIZE)]
Count = Annotated[int, Meta(ge=0, le=limits.MAX_COUNT)]
Bytes = Annotated[int, Meta(ge=0, le=limits.MAX_COUNT)]
Name = Annotated[str, Meta(max_length=limits.MAX_NAME_CHARS)]
Text = Annotated[str, Meta(max_length=limits.MAX_TEXT_CHARS)]
Traceback = Annotated[str, Meta(max_length=limits.MAX_TRACEBACK_CHARS)]


class Kind(IntEnum):
    """The message kinds: the fourth byte of a frame."""

    HELLO = 1
    BEAT = 2
    GROUPS = 3
    RAISED = 4
    PROBE_FAULT = 5
    GOODBYE = 6

    NODE_HELLO = 16
    NODE_REPORT = 17
    PROCESS_ENDED = 18

    RUN_END = 24

    VIEW_REQUEST = 32
    COMMAND_REQUEST = 33

    PING = 40

    PONG = 64
    VIEW_REPLY = 65
    COMMAND_REPLY = 66
    REFUSED = 67
    WHO_ARE_YOU = 68
    RUN_OVER = 69


class Phase(IntEnum):
    """What a rank's training thread is doing."""

    STARTING = 0
    DATA = 1
    FORWARD = 2
    BACKWARD = 3
    OPTIMIZER = 4
    OTHER = 5
    ENDED = 6


class Message(msgspec.Struct, array_like=True, frozen=True):
    """Base of all messages: an array on the wire, trailing unknown fields ignored."""


# --- from a rank -----------------------------------------------------------------------------


class FromRank(Message, frozen=True):
    """What every message of a rank starts with. ``seq`` counts from 1 for each (attempt, rank)."""

    attempt: Count
    rank: Rank
    seq: Count
    t_s: float


class Hello(FromRank, frozen=True):
    """Who this rank is. Sent first, and again when the hub asks ``WHO_ARE_YOU``."""

    run: Name
    world_size: Annotated[int, Meta(ge=1, le=limits.MAX_WORLD_SIZE)]
    local_rank: Rank
    host: Name
    pid: Count
    name: Name
    """What the user calls the run: the script's name unless told otherwise."""
    trainer: Name
    """``ddp``, ``fsdp2``, ``fsdp1`` or ``plain``: how the model is wrapped."""
    device: Name
    """``cpu`` or ``cuda:N``."""
    start_step: Count
    boundary: bool
    """Whether this loop calls ``end_step``; False until it has, and then a new hello is sent."""
    facts: Annotated[dict[Name, Text], Meta(max_length=limits.MAX_FACTS)]
    """Versions and settings, by name: ``python``, ``torch``, ``rankscope``, ``backend``, …"""


class StepRecord(Message, frozen=True):
    """One completed step (numbered from 1). Durations add up to ``step_s``."""

    step: Count
    t_s: float
    step_s: float
    data_s: float
    forward_s: float
    backward_s: float
    optimizer_s: float
    other_s: float
    microbatches: Count
    loss: float | None = None
    tokens: Count | None = None
    grad_norm: float | None = None
    """L2 norm of the reduced gradient over the parameters this rank holds, before clipping where
    that could be seen."""
    grad_norm_sharded: bool = False
    """True when ``grad_norm`` covers a shard; the hub combines the ranks' squares."""


class LateValues(Message, frozen=True):
    """Values of a step that came off the device after its record was sent."""

    step: Count
    loss: float | None = None
    grad_norm: float | None = None


class Memory(Message, frozen=True):
    """Device memory (None on a CPU) and the process's resident set."""

    allocated_bytes: Bytes | None
    reserved_bytes: Bytes | None
    peak_allocated_bytes: Bytes | None
    peak_reserved_bytes: Bytes | None
    device_total_bytes: Bytes | None
    resident_bytes: Bytes
    peak_resident_bytes: Bytes


class CollectiveStatus(Message, frozen=True):
    """The flight recorder's sequence numbers for one process group; -1 where there is none."""

    group: Name
    last_enqueued: int
    last_started: int
    last_completed: int


class Beat(FromRank, frozen=True):
    """What a rank is doing, the steps it completed since its last beat, and what watching costs."""

    step: Count
    """The last completed step; 0 before the first."""
    microbatch: Count
    """The microbatch in work within the next step, from 1; 0 before its first forward."""
    phase: Phase
    phase_t_s: float
    """When the phase began, on this sender's clock."""
    activity: Count
    """Counts phase changes: it moves while the training thread moves."""
    steps: Annotated[tuple[StepRecord, ...], Meta(max_length=limits.MAX_STEPS_PER_BEAT)] = ()
    late: Annotated[tuple[LateValues, ...], Meta(max_length=limits.MAX_STEPS_PER_BEAT)] = ()
    memory: Memory | None = None
    collectives: Annotated[tuple[CollectiveStatus, ...], Meta(max_length=limits.MAX_GROUPS)] = ()
    """Empty when unchanged since the last beat."""
    dropped: Count = 0
    """Records this rank had to throw away since it attached."""
    overhead_s_per_step: float | None = None
    """The agent's own time on the training thread, a step, averaged over the last steps."""
    hub_offset_s: float | None = None
    """Hub clock minus this sender's clock, by request and reply; None until one was answered."""
    hub_offset_error_s: float | None = None
    """Half the round trip of that estimate."""


class Group(Message, frozen=True):
    """A process group: ``name`` is the same on all members, ``description`` is the user's."""

    name: Name
    description: Name
    backend: Name
    size: Count
    ranks: Annotated[tuple[Rank, ...], Meta(max_length=limits.MAX_GROUP_RANKS)]
    """Global ranks; empty for a group larger than a frame allows."""


class Groups(FromRank, frozen=True):
    """The process groups this rank is in; sent when they change."""

    groups: Annotated[tuple[Group, ...], Meta(max_length=limits.MAX_GROUPS)]


class Raised(FromRank, frozen=True):
    """An exception is about to end this rank."""

    type: Name
    message: Text
    traceback: Traceback
    source: Text
    """``file:line in function`` of the innermost frame of the user's own code."""
    step: Count
    """The last completed step: it raised in the one after."""
    phase: Phase
    from_peer: bool
    """The error says that another rank went away (connection reset, group timeout): a victim."""
    event_t_s: float


class ProbeFault(FromRank, frozen=True):
    """A probe failed and was switched off; training was not touched."""

    probe: Name
    error: Text
    step: Count
    """The last completed step."""


class Goodbye(FromRank, frozen=True):
    """The agent ends in an orderly way."""

    reason: Name
    """``finished`` or ``exception``."""
    step: Count
    """The last completed step."""


# --- from a node's sentinel ------------------------------------------------------------------


class FromNode(Message, frozen=True):
    """What every message of a sentinel starts with. ``node`` tells sentinels apart."""

    node: Name
    seq: Count
    t_s: float


class NodeHello(FromNode, frozen=True):
    run: Name
    host: Name
    pid: Count
    gpu_note: Text
    """Empty when NVML works; otherwise why there are no GPU readings, in words."""
    stack_note: Text
    """Empty when ranks' stacks can be read from outside; otherwise what to change."""
    facts: Annotated[dict[Name, Text], Meta(max_length=limits.MAX_FACTS)]


class ProcessSample(Message, frozen=True):
    """One watched rank process. ``state``: ``alive``, ``stopped`` or ``ended``."""

    attempt: Count
    rank: Rank
    pid: Count
    state: Name
    state_s: float
    """How long it has been in that state."""
    cpu_s: float
    resident_bytes: Bytes


class GpuSample(Message, frozen=True):
    """One GPU through NVML; None where the device does not report it."""

    index: Count
    name: Name
    utilisation_percent: float | None
    memory_used_bytes: Bytes | None
    memory_total_bytes: Bytes | None
    temperature_c: float | None
    power_w: float | None
    sm_clock_mhz: float | None
    throttle_reasons: tuple[Name, ...]
    ecc_uncorrected: Count | None
    nvlink_errors: Count | None


class NodeReport(FromNode, frozen=True):
    processes: Annotated[tuple[ProcessSample, ...], Meta(max_length=limits.MAX_PROCESSES_PER_NODE)]
    gpus: Annotated[tuple[GpuSample, ...], Meta(max_length=limits.MAX_GPUS_PER_NODE)] = ()
    load_1min: float | None = None
    memory_available_bytes: Bytes | None = None
    memory_limit_bytes: Bytes | None = None
    """The cgroup's limit where there is one."""
    oom_kills: Count | None = None
    """The cgroup's count of OOM kills since the sentinel began."""


class ProcessEnded(FromNode, frozen=True):
    """A rank's process ended. Sent at once."""

    attempt: Count
    rank: Rank
    pid: Count
    exit_code: int | None
    signal: int | None
    oom_killed: bool
    event_t_s: float
    how: Text
    """How the sentinel knows: ``pidfd``, ``zombie`` or ``vanished`` (then both are None)."""


# --- from the launcher -----------------------------------------------------------------------


class RunEnd(Message, frozen=True):
    """``rankscope run`` saw its command end: nothing of this run will come any more."""

    exit_code: int
    signal: int | None = None


# --- from clients ----------------------------------------------------------------------------


class ViewRequest(Message, frozen=True):
    request: Count
    view: Name
    since: Count = 0
    """The version the client has; 0 for none. The reply leaves out what has not changed since."""
    args: Annotated[dict[Name, int | str], Meta(max_length=16)] = {}


class CommandRequest(Message, frozen=True):
    request: Count
    command: Name
    author: Name
    args: Annotated[dict[Name, int | str], Meta(max_length=16)] = {}


class Ping(Message, frozen=True):
    """From anyone. The hub answers at once with a pong."""

    t_s: float


# --- from the hub ----------------------------------------------------------------------------


class Pong(Message, frozen=True):
    t_s: float
    """The ping's own."""
    hub_s: float
    """The hub's clock (Unix time, seconds)."""


class ViewReply(Message, frozen=True):
    request: Count
    view: Name
    version: Count
    hub_s: float
    changed: bool
    """False: the client's version is the newest and ``body`` is nil."""
    body: msgspec.Raw
    """The view's shape (``shapes``) as MessagePack maps."""
    error: Text = ""
    """Not empty: there is no such view or rank; ``body`` is nil."""


class CommandReply(Message, frozen=True):
    request: Count
    accepted: bool
    text: Text


class Refused(Message, frozen=True):
    """The hub will not talk to this peer, and why. Its layout is the same in all majors."""

    text: Text


class WhoAreYou(Message, frozen=True):
    """The hub does not know this rank or node (it may have restarted): send your hello again.

    ``rank`` is -1 for a sentinel."""

    rank: int


class RunOver(Message, frozen=True):
    """To sentinels: the launcher has said that the run ended; nothing remains to be watched."""


TYPES: dict[Kind, type[Message]] = {
    Kind.HELLO: Hello,
    Kind.BEAT: Beat,
    Kind.GROUPS: Groups,
    Kind.RAISED: Raised,
    Kind.PROBE_FAULT: ProbeFault,
    Kind.GOODBYE: Goodbye,
    Kind.NODE_HELLO: NodeHello,
    Kind.NODE_REPORT: NodeReport,
    Kind.PROCESS_ENDED: ProcessEnded,
    Kind.RUN_END: RunEnd,
    Kind.VIEW_REQUEST: ViewRequest,
    Kind.COMMAND_REQUEST: CommandRequest,
    Kind.PING: Ping,
    Kind.PONG: Pong,
    Kind.VIEW_REPLY: ViewReply,
    Kind.COMMAND_REPLY: CommandReply,
    Kind.REFUSED: Refused,
    Kind.WHO_ARE_YOU: WhoAreYou,
    Kind.RUN_OVER: RunOver,
}

KINDS: dict[type[Message], Kind] = {message: kind for kind, message in TYPES.items()}

ROLES: dict[str, frozenset[Kind]] = {
    "agent": frozenset(kind for kind in Kind if kind < Kind.VIEW_REQUEST) | {Kind.PING},
    "operator": frozenset({Kind.VIEW_REQUEST, Kind.COMMAND_REQUEST, Kind.PING}),
    "viewer": frozenset({Kind.VIEW_REQUEST, Kind.PING}),
}
"""What each role's key may send to the hub."""
