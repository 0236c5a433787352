"""The live numbers of each rank, by column, and what beats and sentinels do to them."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rankscope.hub.state.clocks import Clocks
from rankscope.hub.state.columns import (
    CODE,
    COUNT,
    FLAG,
    FLOAT,
    INDEX,
    Columns,
    Field,
    Flags,
    Floats,
    Integers,
)
from rankscope.protocol import messages as m

UNKNOWN, ALIVE, STOPPED, ENDED = 0, 1, 2, 3
PROCESS_WORDS = ("unknown", "alive", "stopped", "ended")
PROCESS_CODES = {word: code for code, word in enumerate(PROCESS_WORDS)}

NO_GOODBYE, FINISHED, EXCEPTION = 0, 1, 2
NO_EXIT_CODE = -(1 << 40)

RECENT_STEPS = 64
"""Steps of each rank that its page shows."""

PHASES = ("data", "forward", "backward", "optimizer", "other")
PHASE_MEMORY = 20
"""Phase durations are running means over about this many steps."""

Codes = NDArray[np.int8]


class RankColumns(Columns):
    """One element a rank; cleared when an attempt begins. Times are on the hub's clock."""

    FIELDS: ClassVar[Mapping[str, Field]] = {
        # who it is (hello)
        "known": FLAG,
        "host": INDEX,
        "identity": INDEX,
        "pid": INDEX,
        "local_rank": INDEX,
        "start_step": COUNT,
        "boundary": FLAG,
        # what it does (beats)
        "heard_s": FLOAT,
        "step": COUNT,
        "microbatch": COUNT,
        "phase": CODE,
        "phase_since_s": FLOAT,
        "activity": COUNT,
        "moved_s": FLOAT,
        "recorded": COUNT,
        "step_s": FLOAT,
        "first_step_s": FLOAT,
        "longest_step_s": FLOAT,
        "loss": FLOAT,
        "loss_step": COUNT,
        "grad_norm": FLOAT,
        "grad_step": COUNT,
        "grad_sharded": FLAG,
        "tokens_per_s": FLOAT,
        "memory_peak_bytes": INDEX,
        "dropped": COUNT,
        "overhead_s": FLOAT,
        "phase_means_s": Field("f8", 0.0, len(PHASES)),
        "steps_seen": COUNT,
        "recent_step_s": Field("f4", np.nan, RECENT_STEPS),
        # how it ends (goodbye, sentinel)
        "goodbye": CODE,
        "goodbye_s": FLOAT,
        "ended_s": FLOAT,
        "ended_heard_s": FLOAT,
        "exit_code": Field("i8", NO_EXIT_CODE),
        "signal": COUNT,
        "oom_killed": FLAG,
        # its process (sentinel)
        "process": CODE,
        "process_since_s": FLOAT,
        "cpu_s": FLOAT,
        "cpu_moved_s": FLOAT,
        "resident_bytes": INDEX,
        # the version of the state in which its row changed last
        "changed": COUNT,
    }
    known: Flags
    host: Integers
    identity: Integers
    pid: Integers
    local_rank: Integers
    start_step: Integers
    boundary: Flags
    heard_s: Floats
    step: Integers
    microbatch: Integers
    phase: Codes
    phase_since_s: Floats
    activity: Integers
    moved_s: Floats
    recorded: Integers
    step_s: Floats
    first_step_s: Floats
    longest_step_s: Floats
    loss: Floats
    loss_step: Integers
    grad_norm: Floats
    grad_step: Integers
    grad_sharded: Flags
    tokens_per_s: Floats
    memory_peak_bytes: Integers
    dropped: Integers
    overhead_s: Floats
    phase_means_s: Floats
    steps_seen: Integers
    recent_step_s: NDArray[np.float32]
    goodbye: Codes
    goodbye_s: Floats
    ended_s: Floats
    ended_heard_s: Floats
    exit_code: Integers
    signal: Integers
    oom_killed: Flags
    process: Codes
    process_since_s: Floats
    cpu_s: Floats
    cpu_moved_s: Floats
    resident_bytes: Integers
    changed: Integers

    def heard(self) -> Flags:
        """Which ranks have said anything in this attempt."""
        return ~np.isnan(self.heard_s)

    def over(self) -> Flags:
        """Which ranks have ended, in order or not."""
        ended: Flags = (self.goodbye != NO_GOODBYE) | ~np.isnan(self.ended_s)
        return ended

    def beat(self, beat: m.Beat, clocks: Clocks, received_s: float) -> None:
        """Take over what the rank is doing; its completed steps go through ``record``."""
        rank = beat.rank
        self.step[rank] = beat.step
        self.microbatch[rank] = beat.microbatch
        self.phase[rank] = beat.phase
        since_s = clocks.place(rank, beat.phase_t_s, received_s)
        self.phase_since_s[rank] = since_s
        if beat.activity != self.activity.item(rank):
            self.activity[rank] = beat.activity
            moved_s = self.moved_s.item(rank)
            # The phase's own begin is when it moved, also when the news of it comes late.
            self.moved_s[rank] = since_s if not since_s < moved_s else moved_s
        elif math.isnan(self.moved_s.item(rank)):
            self.moved_s[rank] = received_s
        self.dropped[rank] = beat.dropped
        if beat.overhead_s_per_step is not None:
            self.overhead_s[rank] = beat.overhead_s_per_step
        memory = beat.memory
        if memory is not None:
            peak = memory.peak_allocated_bytes
            self.memory_peak_bytes[rank] = memory.peak_resident_bytes if peak is None else peak

    def record(self, rank: int, record: m.StepRecord) -> bool:
        """Take over one completed step; False when it was known already."""
        if record.step <= self.recorded.item(rank):
            return False
        self.recorded[rank] = record.step
        step_s = record.step_s
        self.step_s[rank] = step_s
        seen = self.steps_seen.item(rank)
        self.steps_seen[rank] = seen + 1
        self.recent_step_s[rank, seen % RECENT_STEPS] = step_s
        if seen == 0:
            self.first_step_s[rank] = step_s
        elif not self.longest_step_s.item(rank) >= step_s:
            self.longest_step_s[rank] = step_s
        means = self.phase_means_s[rank]
        means += (phases_s(record) - means) / min(seen + 1, PHASE_MEMORY)
        if record.tokens is not None and step_s > 0:
            self.tokens_per_s[rank] = record.tokens / step_s
        self.values(rank, record.step, record.loss, record.grad_norm)
        self.grad_sharded[rank] = record.grad_norm_sharded
        return True

    def values(self, rank: int, step: int, loss: float | None, grad_norm: float | None) -> None:
        """Loss and gradient norm of ``step``; older ones than those known are left."""
        if loss is not None and step >= self.loss_step.item(rank):
            self.loss[rank] = loss
            self.loss_step[rank] = step
        if grad_norm is not None and step >= self.grad_step.item(rank):
            self.grad_norm[rank] = grad_norm
            self.grad_step[rank] = step

    def sampled(self, sample: m.ProcessSample, at_s: float) -> bool:
        """Take over what the sentinel sees of the process; True when its state changed."""
        rank = sample.rank
        code = PROCESS_CODES.get(sample.state, UNKNOWN)
        changed = code != self.process.item(rank)
        if changed:
            self.process[rank] = code
            self.process_since_s[rank] = at_s - max(0.0, sample.state_s)
        if not sample.cpu_s <= self.cpu_s.item(rank):
            self.cpu_s[rank] = sample.cpu_s
            self.cpu_moved_s[rank] = at_s
        self.resident_bytes[rank] = sample.resident_bytes
        if self.pid.item(rank) < 0:
            self.pid[rank] = sample.pid
        return changed

    def ended(self, end: m.ProcessEnded, at_s: float, received_s: float) -> None:
        """The sentinel saw the process end."""
        rank = end.rank
        if not math.isnan(self.ended_s.item(rank)):
            return
        self.ended_s[rank] = at_s
        self.ended_heard_s[rank] = received_s
        self.process[rank] = ENDED
        self.process_since_s[rank] = at_s
        if end.exit_code is not None:
            self.exit_code[rank] = end.exit_code
        self.signal[rank] = end.signal or 0
        self.oom_killed[rank] = end.oom_killed
        if self.pid.item(rank) < 0:
            self.pid[rank] = end.pid

    def recent(self, rank: int) -> list[float]:
        """The rank's newest step times in seconds, oldest first."""
        seen = self.steps_seen.item(rank)
        ring = self.recent_step_s[rank]
        if seen < RECENT_STEPS:
            return [float(value) for value in ring[:seen]]
        return [float(value) for value in np.roll(ring, -(seen % RECENT_STEPS))]


def phases_s(record: m.StepRecord) -> Any:
    """The record's durations in the order of ``PHASES``, shape (5,), seconds."""
    return np.array(
        (record.data_s, record.forward_s, record.backward_s, record.optimizer_s, record.other_s)
    )
