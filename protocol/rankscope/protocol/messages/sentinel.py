"""What a node's sentinel says: of processes, GPUs, and stacks read from outside."""

from typing import Annotated

from msgspec import Meta

from rankscope.protocol import limits
from rankscope.protocol.messages.base import Bytes, Count, FromNode, Message, Name, Rank, Text
from rankscope.protocol.messages.collectives import Operation
from rankscope.protocol.messages.stacks import Thread


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
    ready_s: float = 0.0
    """For how long its main thread was running or ready to run at each look; 0 when it waits."""
    queued_ms: Count | None = None
    """How long its main thread has been ready to run without a core, since it began; None where the
    kernel does not tell."""


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
