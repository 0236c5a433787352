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
    SIGNS = 7
    CHECKSUMS = 8
    PARAMETER_NORMS = 9
    STACKS = 10
    OPERATIONS = 11
    SAVING = 12
    CONTROLLED = 13

    NODE_HELLO = 16
    NODE_REPORT = 17
    PROCESS_ENDED = 18
    FOREIGN_STACKS = 19

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
    INQUIRE = 70
    ORDER = 71


class Phase(IntEnum):
    """What a rank's training thread is doing."""

    STARTING = 0
    DATA = 1
    FORWARD = 2
    BACKWARD = 3
    OPTIMIZER = 4
    OTHER = 5
    ENDED = 6


class Stage(IntEnum):
    """Where in a step a number was looked at, in the order in which a step goes through them."""

    INPUT = 1
    PARAMETER = 2
    """Before the update that the step ends with."""
    FORWARD = 3
    """A module's output."""
    LOSS = 4
    GRADIENT = 5
    """This rank's own, before any reduction."""
    CAST = 6
    """The same, in the type in which it is reduced."""
    REDUCED = 7
    """After the reduction (and before clipping, where that could be seen)."""
    OPTIMIZER = 8
    """The optimizer's state, before the update."""
    UPDATED = 9
    """The parameter after the update."""


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
    local_norm: float | None = None
    """L2 norm of this rank's own gradient, before any reduction, accumulated over the step's
    microbatches; None where it was not looked at."""
    fingerprint: Count | None = None
    """Of the step's input batches, in order: equal for equal data, on any rank."""
    updated: bool | None = None
    """Whether the optimizer made its update in this step; None where that cannot be seen."""
    loss_scale: float | None = None
    """The gradient scaler's factor, which ``local_norm`` has been divided by."""
    waited_s: Annotated[tuple[float, ...], Meta(max_length=5)] = ()
    """Of the durations above (``data_s`` … ``other_s``), how much was waiting in collectives;
    empty where that cannot be seen."""


class LateValues(Message, frozen=True):
    """Values of a step that came off the device after its record was sent."""

    step: Count
    loss: float | None = None
    grad_norm: float | None = None
    local_norm: float | None = None


class Memory(Message, frozen=True):
    """Device memory (None on a CPU) and the process's resident set."""

    allocated_bytes: Bytes | None
    reserved_bytes: Bytes | None
    peak_allocated_bytes: Bytes | None
    peak_reserved_bytes: Bytes | None
    device_total_bytes: Bytes | None
    resident_bytes: Bytes
    peak_resident_bytes: Bytes
    anonymous_bytes: Bytes | None = None
    """Of the resident set what is no file's and not shared; None where that is not known."""
    limit_bytes: Bytes | None = None
    """A limit on the process's address space (``ulimit -v``); None where there is none."""
    limited_bytes: Bytes | None = None
    """How much of that it takes."""
    state_bytes: Bytes | None = None
    """Parameters, gradients and optimizer state that the rank holds, by shapes and element types;
    None before two updates."""


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
    expecting: Name = ""
    """What the user's code said it is about to do that may take long, such as ``evaluation``;
    empty when nothing."""
    data_over: bool = False
    """The loader that was read last has ended, and none was begun since."""


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
    """``finished``, ``exception``, or ``paused``: the rank goes on unobserved, for a while."""
    step: Count
    """The last completed step."""
    data_over: bool = False
    """As in a beat: it ended because it had no more data."""


class Sign(Message, frozen=True):
    """A number that is not as it should be, where it was seen on this rank."""

    stage: Stage
    step: Count
    """The step in work, from 1."""
    microbatch: Count
    """From 1; 0 when it is not of one microbatch."""
    name: Text
    """The parameter or module, as the user's model names it; of an input its place, such as
    ``args[0]``; empty when it is of none."""
    value: Name
    """``nan``, ``inf`` or ``-inf``, the worst of them in that order; or a finite number in words
    where that is the trouble."""
    count: Count = 0
    """How many elements; 0 when that was not counted."""
    others: Count = 0
    """How many more names show the same at this stage, not listed."""
    note: Text = ""
    """What else is known, in words: ``largest 1e+06, float16 ends at 65504``."""


class Signs(FromRank, frozen=True):
    """What was seen in one step of what is not finite, in the order in which it was seen.

    Sent at once. A rank that goes on seeing the same says so again with each step, shortly.
    """

    step: Count
    signs: Annotated[tuple[Sign, ...], Meta(max_length=limits.MAX_SIGNS)]
    looked: Annotated[tuple[Stage, ...], Meta(max_length=16)] = ()
    """The stages that were looked at in this step, so that none of the others was cleared."""


class Checksum(Message, frozen=True):
    name: Text
    value: Count
    """Of the bits of the tensor: one flipped bit changes it. Equal for equal bits on any rank."""
    buffer: bool = False
    """Of a buffer, which replicas need not have alike."""


class Checksums(FromRank, frozen=True):
    """This rank's replica at the end of a step: to be equal on all ranks of ``replicas``."""

    step: Count
    first: Count
    """The index of the first tensor of ``values``: a large model is gone through in parts, which
    are the same for all ranks at the same step."""
    total: Count
    """One checksum over all parameters of the part; buffers are left out."""
    values: Annotated[tuple[Checksum, ...], Meta(max_length=limits.MAX_CHECKSUMS)] = ()
    """Empty in a large world, until asked for."""
    replicas: Name = "world"
    """The ranks that hold the same: ``world``, or a name that all of them share."""
    altered: Annotated[tuple[Text, ...], Meta(max_length=limits.MAX_CHECKSUMS)] | None = None
    """Parameters that were written to, or whose bits changed, between the end of the step before
    and this step's update: on this rank, whatever the others have. None: not compared.
    """


class ParameterNorm(Message, frozen=True):
    name: Text
    local_norm: float | None
    """Of this rank's own gradient before reduction."""
    value: Name = ""
    """``nan`` or ``inf`` where it is not finite."""


class ParameterNorms(FromRank, frozen=True):
    """The gradient of each parameter in one step. Sent when asked for, and with signs."""

    step: Count
    norms: Annotated[tuple[ParameterNorm, ...], Meta(max_length=limits.MAX_PARAMETERS)]
    left_out: Count = 0


class Frame(Message, frozen=True):
    """One frame of a stack; ``file`` as the interpreter knows it. ``line`` 0: not known."""

    file: Text
    line: Count
    function: Text


class Thread(Message, frozen=True):
    name: Name
    main: bool
    """Whether it is the one that trains."""
    frames: Annotated[tuple[Frame, ...], Meta(max_length=limits.MAX_FRAMES)]
    """The innermost first."""
    holds_gil: bool | None = None
    """None where that cannot be seen."""


class Stacks(FromRank, frozen=True):
    """What the threads of a rank are in, the training thread first; from within the process."""

    why: Name
    """``asked``, ``stalled`` or ``raised``."""
    source: Text
    """``file:line in function`` of the innermost frame of the user's own code in the training
    thread; empty when there is none."""
    threads: Annotated[tuple[Thread, ...], Meta(max_length=limits.MAX_THREADS)]
    step: Count = 0
    """The last completed step."""
    phase: Phase = Phase.OTHER


class Operation(Message, frozen=True):
    """One collective as the flight recorder of a rank has it."""

    group: Name
    seq: Count
    """Counts the group's collectives, from 1 as torch numbers them."""
    name: Name
    """``gloo:all_reduce``, ``nccl:_all_gather_base``, …"""
    sizes: Name
    """Of inputs and outputs, in words: ``[1024] -> [1024]``."""
    dtype: Name
    state: Name
    """``scheduled``, ``started`` or ``completed``, as far as the backend tells them apart."""
    source: Text = ""
    """``file:line in function`` of the user's own code that called it, where known."""
    age_s: float | None = None
    """How long before this message it was called."""


class Operations(FromRank, frozen=True):
    """The newest collectives of this rank, oldest first, and how far each of its groups is.

    Read from the flight recorder once a stall is suspected, when asked, or when it raised.
    """

    why: Name
    statuses: Annotated[tuple[CollectiveStatus, ...], Meta(max_length=limits.MAX_GROUPS)]
    operations: Annotated[tuple[Operation, ...], Meta(max_length=limits.MAX_OPERATIONS)]
    note: Text = ""
    """Why there are none, in words, such as that the recorder is switched off."""


class Saving(FromRank, frozen=True):
    """How far this rank's checkpoint is, and what came of it. Sent as it changes."""

    step: Count
    """The step that is saved; 0 when none is."""
    request: Count
    """The operator's request that it answers; 0 for one that was not asked for."""
    phase: Name
    """``idle``, ``staging``, ``waiting``, ``writing``, ``syncing``, ``publishing``, ``done`` or
    ``failed``."""
    phase_t_s: float
    done_bytes: Bytes = 0
    total_bytes: Bytes = 0
    rate_bytes_per_s: float | None = None
    text: Text = ""
    """What came of it in words; of ``idle`` how far the pending request is."""
    path: Text = ""
    """Of the checkpoint, once it is ``done``."""
    culprit: int = -1
    """The rank in which it failed; -1 for none in particular."""
    culprit_phase: Name = ""
    pending: Count = 0
    """The request that the ranks are agreeing on; 0 for none."""


class Controlled(FromRank, frozen=True):
    """How far this rank is with what an operator asked for, or what came of it here.

    Sent as it changes, by every rank whose loop has ended a step by ``end_step``.
    """

    phase: Name
    """``idle``; of a request in work ``waiting`` (for all ranks to hear of it), ``agreeing``,
    ``agreed``, ``arrived`` (at the boundary, for the others to come), ``paused`` or ``saving``
    (held there until the checkpoint is out); of one that is over ``done``, ``given-up`` or
    ``cancelled``.
    """
    phase_t_s: float
    request: Count = 0
    """Of what is told here; 0 when there is none."""
    command: Name = ""
    author: Name = ""
    boundary: Count = 0
    """The boundary that was agreed on: the step it comes after; 0 before."""
    expires_s: float | None = None
    """Of ``paused``: how long from now until it ends by itself."""
    text: Text = ""
    """In words, what it waits for or what came of it."""
    saver: bool = False
    """Whether there is a checkpointer."""
    unable: Text = ""
    """Why this rank cannot follow requests; empty when it can."""
    stop_step: Count = 0
    """The boundary at which the loop was told to stop; 0 when it was not."""
    overrun: Count = 0
    """How many boundaries it has passed since: such a loop does not look at ``should_stop``."""


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
    finished: bool = False
    """The rank's agent had ended in order, by what it left: its goodbye may not have got out."""


class ForeignStacks(FromNode, frozen=True):
    """The threads of a rank, read from outside its process, the main thread first."""

    attempt: Count
    rank: Rank
    pid: Count
    threads: Annotated[tuple[Thread, ...], Meta(max_length=limits.MAX_THREADS)]
    native: bool
    """Whether frames of C and C++ are among them."""
    source: Text = ""
    """``file:line in function`` of the innermost frame of the user's own code; empty: none."""
    error: Text = ""
    """Why there are none, in words, and what to change."""
    operations: Annotated[tuple[Operation, ...], Meta(max_length=limits.MAX_OPERATIONS)] = ()
    """The newest collectives that the rank's own code called, oldest first, from what it leaves
    behind: also of one that has ended, of which there are no threads. Whether they were completed
    is not known. Of one that has ended, those of no group named ``went_on`` are no collectives: the
    rank came to the first forward, or the first backward, of a step."""


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
    reference: Count = 0
    """What the command is called in views, where it takes time; 0 for none."""


class Refused(Message, frozen=True):
    """The hub will not talk to this peer, and why. Its layout is the same in all majors."""

    text: Text


class WhoAreYou(Message, frozen=True):
    """The hub does not know this rank or node (it may have restarted): send your hello again.

    ``rank`` is -1 for a sentinel."""

    rank: int


class RunOver(Message, frozen=True):
    """To sentinels: the launcher has said that the run ended; nothing remains to be watched."""


class Inquire(Message, frozen=True):
    """The hub wants to know more of a rank. Answered from the agent's own thread, not by training.

    To an agent (``stacks``, ``operations``, ``checksums``, ``parameter_norms``) or to a sentinel
    (``foreign_stacks`` of that rank).
    """

    rank: Rank
    what: Annotated[tuple[Name, ...], Meta(max_length=8)]


class Order(Message, frozen=True):
    """An operator's request, for all ranks: they agree on the boundary at which they follow it."""

    command: Name
    """``checkpoint``, ``checkpoint-and-stop``, ``stop`` or ``pause``; or ``resume`` or ``cancel``,
    which need no agreement."""
    request: Count
    """Grows from one request to the next, over restarts of the hub, too."""
    expires_s: float
    """From now; then it is given up if the ranks have not agreed."""
    author: Name = ""
    target: Count = 0
    """Of ``resume`` and ``cancel``: the request that they end; 0 for a save nobody asked for."""
    lasts_s: float = 0.0
    """Of ``pause``: when nobody resumes, it ends by itself after so long."""


TYPES: dict[Kind, type[Message]] = {
    Kind.HELLO: Hello,
    Kind.BEAT: Beat,
    Kind.GROUPS: Groups,
    Kind.RAISED: Raised,
    Kind.PROBE_FAULT: ProbeFault,
    Kind.GOODBYE: Goodbye,
    Kind.SIGNS: Signs,
    Kind.CHECKSUMS: Checksums,
    Kind.PARAMETER_NORMS: ParameterNorms,
    Kind.STACKS: Stacks,
    Kind.OPERATIONS: Operations,
    Kind.SAVING: Saving,
    Kind.CONTROLLED: Controlled,
    Kind.NODE_HELLO: NodeHello,
    Kind.NODE_REPORT: NodeReport,
    Kind.PROCESS_ENDED: ProcessEnded,
    Kind.FOREIGN_STACKS: ForeignStacks,
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
    Kind.INQUIRE: Inquire,
    Kind.ORDER: Order,
}

KINDS: dict[type[Message], Kind] = {message: kind for kind, message in TYPES.items()}

ROLES: dict[str, frozenset[Kind]] = {
    "agent": frozenset(kind for kind in Kind if kind < Kind.VIEW_REQUEST) | {Kind.PING},
    "operator": frozenset({Kind.VIEW_REQUEST, Kind.COMMAND_REQUEST, Kind.PING}),
    "viewer": frozenset({Kind.VIEW_REQUEST, Kind.PING}),
}
"""What each role's key may send to the hub."""
