"""What a rank says several times a second: where it is, and the steps it completed."""

from enum import IntEnum
from typing import Annotated

from msgspec import Meta

from rankscope.protocol import limits
from rankscope.protocol.messages.base import Bytes, Count, FromRank, Message, Name
from rankscope.protocol.messages.collectives import CollectiveStatus


class Phase(IntEnum):
    """What a rank's training thread is doing."""

    STARTING = 0
    DATA = 1
    FORWARD = 2
    BACKWARD = 3
    OPTIMIZER = 4
    OTHER = 5
    ENDED = 6


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
