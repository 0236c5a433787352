"""The live numbers of each rank, by column, and what beats and sentinels do to them."""

import math
from collections.abc import Mapping
from typing import ClassVar

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

NO_GOODBYE, FINISHED, EXCEPTION, UNOBSERVED = 0, 1, 2, 3
NO_EXIT_CODE = -(1 << 40)

RECENT_STEPS = 64
"""Steps of each rank that its page shows."""

PHASES = ("data", "forward", "backward", "optimizer", "other")
PHASE_MEMORY = 20
"""Phase durations are running means over about this many steps."""

CPU_WINDOW_S = 5.0
"""CPU time is judged over one to two of these."""
QUEUE_WINDOW_S = 1.0
CPU_BUSY_SHARE, CPU_IDLE_SHARE = 0.1, 0.02
"""Shares of one core; between them the judgement stays, so that it does not flicker."""

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
        "excused_s": FLOAT,
        "step": COUNT,
        "microbatch": COUNT,
        "phase": CODE,
        "work_phase": CODE,
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
        "unheard": FLAG,
        "ended_s": FLOAT,
        "ended_heard_s": FLOAT,
        "exit_code": Field("i8", NO_EXIT_CODE),
        "signal": COUNT,
        "oom_killed": FLAG,
        # its process (sentinel)
        "process": CODE,
        "process_since_s": FLOAT,
        "alive_s": FLOAT,
        "stopped_s": FLOAT,
        "cpu_s": FLOAT,
        "cpu_mark_s": FLOAT,
        "cpu_mark_at_s": FLOAT,
        "cpu_before_s": FLOAT,
        "cpu_before_at_s": FLOAT,
        "queued_mark_s": FLOAT,
        "queued_mark_at_s": FLOAT,
        "queued_share": FLOAT,
        "cpu_busy": FLAG,
        "ready_since_s": FLOAT,
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
    excused_s: Floats
    """Silence before this is explained; see ``silence.py``."""
    step: Integers
    microbatch: Integers
    phase: Codes
    work_phase: Codes
    """The newest phase but ``ended``: where it was when it ended."""
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
    unheard: Flags
    """It ended in order, as its sentinel found, and its own last words have not come."""
    ended_s: Floats
    ended_heard_s: Floats
    exit_code: Integers
    signal: Integers
    oom_killed: Flags
    process: Codes
    process_since_s: Floats
    alive_s: Floats
    """When its sentinel saw last that it had not ended."""
    stopped_s: Floats
    """Since when it is stopped, or was until it ended; NaN where it has spoken since. That it is
    seen to run says nothing: so is a stopped process that was killed, while it goes."""
    cpu_s: Floats
    cpu_mark_s: Floats
    """CPU time at ``cpu_mark_at_s``; ``cpu_before`` is the mark before it."""
    cpu_mark_at_s: Floats
    cpu_before_s: Floats
    cpu_before_at_s: Floats
    queued_mark_s: Floats
    """Time without a core at ``queued_mark_at_s``."""
    queued_mark_at_s: Floats
    queued_share: Floats
    """Which part of the last second or two its main thread was ready to run and had no core; NaN
    where that is not known."""
    cpu_busy: Flags
    """Whether it computes, judged over the last seconds."""
    ready_since_s: Floats
    """Since when it was running or ready to run at each look; NaN when it waits for something."""
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
        cells = self.cells
        rank = beat.rank
        cells.step[rank] = beat.step
        cells.microbatch[rank] = beat.microbatch
        cells.phase[rank] = beat.phase
        if beat.phase != m.Phase.ENDED:
            cells.work_phase[rank] = beat.phase
        since_s = clocks.place(rank, beat.phase_t_s, received_s)
        cells.phase_since_s[rank] = since_s
        if beat.activity != cells.activity[rank]:
            cells.activity[rank] = beat.activity
            moved_s = cells.moved_s[rank]
            # The phase's own begin is when it moved, also when the news of it comes late.
            cells.moved_s[rank] = since_s if not since_s < moved_s else moved_s
        elif math.isnan(cells.moved_s[rank]):
            cells.moved_s[rank] = received_s
        if cells.process[rank] != STOPPED:
            cells.stopped_s[rank] = math.nan
        cells.dropped[rank] = beat.dropped
        if beat.overhead_s_per_step is not None:
            cells.overhead_s[rank] = beat.overhead_s_per_step
        memory = beat.memory
        if memory is not None:
            peak = memory.peak_allocated_bytes
            cells.memory_peak_bytes[rank] = memory.peak_resident_bytes if peak is None else peak

    def record(self, rank: int, record: m.StepRecord) -> bool:
        """Take over one completed step; False when it was known already."""
        cells = self.cells
        if record.step <= cells.recorded[rank]:
            return False
        cells.recorded[rank] = record.step
        step_s = record.step_s
        cells.step_s[rank] = step_s
        seen = cells.steps_seen[rank]
        cells.steps_seen[rank] = seen + 1
        cells.recent_step_s[rank, seen % RECENT_STEPS] = step_s
        if seen == 0:
            cells.first_step_s[rank] = step_s
        elif not cells.longest_step_s[rank] >= step_s:
            cells.longest_step_s[rank] = step_s
        weight = 1.0 / min(seen + 1, PHASE_MEMORY)
        means = cells.phase_means_s
        for place, phase_s in enumerate(phases_s(record)):
            mean_s = means[rank, place]
            means[rank, place] = mean_s + (phase_s - mean_s) * weight
        if record.tokens is not None and step_s > 0:
            cells.tokens_per_s[rank] = record.tokens / step_s
        self.values(rank, record.step, record.loss, record.grad_norm)
        cells.grad_sharded[rank] = record.grad_norm_sharded
        return True

    def values(self, rank: int, step: int, loss: float | None, grad_norm: float | None) -> None:
        """Loss and gradient norm of ``step``; older ones than those known are left."""
        cells = self.cells
        if loss is not None and step >= cells.loss_step[rank]:
            cells.loss[rank] = loss
            cells.loss_step[rank] = step
        if grad_norm is not None and step >= cells.grad_step[rank]:
            cells.grad_norm[rank] = grad_norm
            cells.grad_step[rank] = step

    def sampled(self, sample: m.ProcessSample, at_s: float, received_s: float) -> bool:
        """Take over what the sentinel saw of the process at ``at_s``; True when its state
        changed."""
        cells = self.cells
        rank = sample.rank
        code = PROCESS_CODES.get(sample.state, UNKNOWN)
        changed = bool(code != cells.process[rank])
        if changed:
            if cells.process[rank] == STOPPED:
                # It could not speak until now. The news counts: the hub may have missed the event.
                cells.excused_s[rank] = received_s
            cells.process[rank] = code
            cells.process_since_s[rank] = at_s - max(0.0, sample.state_s)
            if code == STOPPED:
                cells.stopped_s[rank] = cells.process_since_s[rank]
        if code != ENDED:
            cells.alive_s[rank] = at_s
        if not sample.cpu_s <= cells.cpu_s[rank]:
            cells.cpu_s[rank] = sample.cpu_s
        self._judge_cpu(rank, at_s)
        queued_ms = sample.queued_ms
        self._judge_queue(rank, at_s, math.nan if queued_ms is None else queued_ms / 1e3)
        cells.ready_since_s[rank] = at_s - sample.ready_s if sample.ready_s > 0 else math.nan
        cells.resident_bytes[rank] = sample.resident_bytes
        if cells.pid[rank] < 0:
            cells.pid[rank] = sample.pid
        return changed

    def _judge_cpu(self, rank: int, at_s: float) -> None:
        """Whether it computes: its share of a core since the mark before the last one."""
        cells = self.cells
        cpu_s = cells.cpu_s[rank]
        marked_s = cells.cpu_mark_at_s[rank]
        if math.isnan(marked_s) or at_s - marked_s >= CPU_WINDOW_S:
            first = math.isnan(marked_s)
            cells.cpu_before_s[rank] = cpu_s if first else cells.cpu_mark_s[rank]
            cells.cpu_before_at_s[rank] = at_s if first else marked_s
            cells.cpu_mark_s[rank] = cpu_s
            cells.cpu_mark_at_s[rank] = at_s
        span_s = at_s - cells.cpu_before_at_s[rank]
        if span_s > 0:
            share = (cpu_s - cells.cpu_before_s[rank]) / span_s
            if share >= CPU_BUSY_SHARE:
                cells.cpu_busy[rank] = True
            elif share <= CPU_IDLE_SHARE:
                cells.cpu_busy[rank] = False

    def _judge_queue(self, rank: int, at_s: float, queued_s: float) -> None:
        """Whether it would compute: its share of waiting for a core since the last mark."""
        cells = self.cells
        span_s = at_s - cells.queued_mark_at_s[rank]
        if span_s < QUEUE_WINDOW_S:
            return
        cells.queued_share[rank] = (queued_s - cells.queued_mark_s[rank]) / span_s
        cells.queued_mark_s[rank], cells.queued_mark_at_s[rank] = queued_s, at_s

    def ended(self, end: m.ProcessEnded, at_s: float, received_s: float) -> None:
        """The sentinel saw the process end."""
        cells = self.cells
        rank = end.rank
        if not math.isnan(cells.ended_s[rank]):
            return
        cells.ended_s[rank] = at_s
        cells.ended_heard_s[rank] = received_s
        cells.process[rank] = ENDED
        cells.process_since_s[rank] = at_s
        if end.exit_code is not None:
            cells.exit_code[rank] = end.exit_code
        cells.signal[rank] = end.signal or 0
        cells.oom_killed[rank] = end.oom_killed
        if cells.pid[rank] < 0:
            cells.pid[rank] = end.pid

    def recent(self, rank: int) -> list[float]:
        """The rank's newest step times in seconds, oldest first."""
        seen = self.steps_seen.item(rank)
        ring = self.recent_step_s[rank]
        if seen < RECENT_STEPS:
            return [float(value) for value in ring[:seen]]
        return [float(value) for value in np.roll(ring, -(seen % RECENT_STEPS))]


def phases_s(record: m.StepRecord) -> tuple[float, ...]:
    """The record's durations in the order of ``PHASES``, seconds."""
    return (
        record.data_s,
        record.forward_s,
        record.backward_s,
        record.optimizer_s,
        record.other_s,
    )
