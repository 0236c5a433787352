"""From what the training thread noted down to the messages of the wire. Pure; one thread's own."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from rankscope.agent import events as e
from rankscope.agent.checks import Checks
from rankscope.agent.clock.phases import Phases, StepTimes
from rankscope.agent.clock.waits import Waits
from rankscope.agent.events import Event, StepNote
from rankscope.agent.outbox import Outbox
from rankscope.agent.probes.numerics.batch import fingerprint
from rankscope.protocol.messages import (
    Goodbye,
    LateValues,
    ParameterNorms,
    Phase,
    ProbeFault,
    Raised,
    Signs,
    StepRecord,
)

COST_STEPS = 32
"""The agent's own cost is averaged over this many steps."""

MORE = StepRecord.__struct_fields__[StepRecord.__struct_fields__.index("local_norm") :]
"""Fields of a step's record that a note has in ``more``."""

NOTES_KEPT = 256
"""For this many steps a value that comes late is still placed."""


class Digest:
    """Feeds the phase machine and fills the outbox."""

    def __init__(self, phases: Phases, outbox: Outbox) -> None:
        self.phases = phases
        self.outbox = outbox
        self.checks = Checks()
        self.boundary = False
        """Whether the loop calls ``end_step``."""
        self.completed = 0
        """Steps seen to end."""
        self.step_s = 0.0
        """How long the newest of them took."""
        self.data_over = False
        """The loader that was read last has ended, and none was begun since."""
        self._waits = Waits()
        self._costs: deque[float] = deque(maxlen=COST_STEPS)
        self._kernel_costs: deque[float] = deque(maxlen=COST_STEPS)
        self._spent_s = self._kernel_s = 0.0
        self._number = 0
        self._steps: dict[int, int] = {}  # note's number -> step
        self._last: StepRecord | None = None
        self._sharded = False
        begin, end = self._begin, self._end
        self._handlers: dict[int, Callable[[Event], None]] = {
            e.BEGIN_DATA: self._begin_data,
            e.DATA_OVER: self._data_is_over,
            e.END_DATA: end(Phase.DATA),
            e.BEGIN_FORWARD: self._forward,
            e.BEGIN_FURTHER_FORWARD: self._further_forward,
            e.END_FORWARD: end(Phase.FORWARD),
            e.BEGIN_BACKWARD: begin(Phase.BACKWARD),
            e.END_BACKWARD: self._end_backward,
            e.COMPUTED: lambda event: self._waits.computed(event[1]),
            e.WAITED: lambda event: self._waits.waited(self.phases.snapshot.phase, event[2]),
            e.BEGIN_OPTIMIZER: begin(Phase.OPTIMIZER),
            e.END_OPTIMIZER: end(Phase.OPTIMIZER),
            e.STEPPED: self._stepped,
            e.END_STEP: self._end_step,
            e.LATE: self._late,
            e.RAISED: self._raised,
            e.FAULT: self._fault,
            e.CLOSED: self._closed,
            e.PAUSED: self._paused,
            e.SIGNS: self._signs,
            e.PARAMETER_NORMS: self._parameter_norms,
            e.CHECKSUMS: self._checksums,
            e.HELD: lambda event: self.phases.held(event[1]),
        }

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            self._handlers[event[0]](event)

    def overhead_s(self) -> float | None:
        """The agent's mean time on the training thread, a step: bookkeeping and looking at numbers.

        Over the last steps; None before the first.
        """
        whole_s = sum(self._costs) + sum(self._kernel_costs)
        return whole_s / len(self._costs) if self._costs else None

    def _begin(self, bracket: Phase) -> Callable[[Event], None]:
        return lambda event: self.phases.begin(bracket, event[1])

    def _end(self, bracket: Phase) -> Callable[[Event], None]:
        return lambda event: self.phases.end(bracket, event[1])

    def _begin_data(self, event: Event) -> None:
        self.data_over = False
        self.phases.begin(Phase.DATA, event[1])

    def _data_is_over(self, event: Event) -> None:
        self.data_over = True

    def _end_backward(self, event: Event) -> None:
        self._waits.backward_ended(event[1])
        self.phases.end(Phase.BACKWARD, event[1])

    def _forward(self, event: Event) -> None:
        self.phases.begin(Phase.FORWARD, event[1], evaluates=not event[2])

    def _further_forward(self, event: Event) -> None:
        self.phases.begin(Phase.FORWARD, event[1], evaluates=not event[2], counts=False)

    def _stepped(self, event: Event) -> None:
        self.phases.end(Phase.OPTIMIZER, event[1])
        self._complete(self.phases.complete(event[1]), StepNote(*event[2]))

    def _end_step(self, event: Event) -> None:
        now, note = event[1], StepNote(*event[2])
        first, self.boundary = not self.boundary, True
        if first and self.phases.fresh and self._last is not None:
            # The optimizer's hook has just ended this very step: this is its true end.
            self._complete(self.phases.extend(now), note, self._last)
        else:
            self._complete(self.phases.complete(now), note)

    def _complete(self, times: StepTimes, note: StepNote, known: StepRecord | None = None) -> None:
        self.completed += 1
        self.outbox.lost(note.number - self._number - 1)
        self._number = note.number
        self._steps[note.number] = times.step
        if len(self._steps) > NOTES_KEPT:
            del self._steps[next(iter(self._steps))]
        self._costs.append(note.spent_s - self._spent_s)
        self._kernel_costs.append(note.kernel_s - self._kernel_s)
        self._spent_s, self._kernel_s = note.spent_s, note.kernel_s
        loss, grad_norm, sharded = step_loss(note), note.grad_norm, note.sharded
        if known is not None:
            loss = known.loss if loss is None else loss
            if grad_norm is None:
                grad_norm, sharded = known.grad_norm, known.grad_norm_sharded
        # A step without a norm says nothing new about whether it is of a shard.
        self._sharded = sharded = self._sharded if sharded is None else sharded
        waited_s = self._waits.take()
        more = note.more or {}
        if "fingerprint" in more:
            more["fingerprint"] = fingerprint(more["fingerprint"])
        if known is not None:
            more = {name: getattr(known, name) for name in MORE} | more
        self._last = StepRecord(
            *times,
            loss=loss,
            tokens=note.tokens,
            grad_norm=grad_norm,
            grad_norm_sharded=sharded,
            **({"waited_s": waited_s} | more),
        )
        self.step_s = times.step_s
        self.outbox.put_step(self._last)

    def _late(self, event: Event) -> None:
        _, _, number, values = event
        step = self._steps.get(number)
        if step is not None:
            self.outbox.put_late(LateValues(step, **values))

    def _parameter_norms(self, event: Event) -> None:
        _, _, number, norms, left_out = event
        step = self.step_of(number)
        self.outbox.put_urgent(ParameterNorms, step=step, norms=tuple(norms), left_out=left_out)

    def step_of(self, number: int) -> int:
        """The step whose note has that number; the one in work, where it has not come yet."""
        return self._steps.get(number, self.phases.snapshot.step + 1)

    def _signs(self, event: Event) -> None:
        _, _, number, signs, looked = event
        step = self.step_of(number)
        placed = tuple(msgspec.structs.replace(sign, step=step) for sign in signs)
        self.outbox.put_urgent(Signs, step=step, signs=placed, looked=looked)

    def _checksums(self, event: Event) -> None:
        _, now, check, values, altered = event
        step = self._steps.get(check.number, self.phases.snapshot.step + 1)
        kind, fields = self.checks.said(step, now, check, values, altered)
        self.outbox.put_check(kind, **fields)

    def _raised(self, event: Event) -> None:
        _, now, fields = event
        snapshot = self.phases.snapshot
        where: dict[str, Any] = {"step": snapshot.step, "phase": snapshot.phase, "event_t_s": now}
        self.outbox.put_urgent(Raised, **(where | fields))

    def _fault(self, event: Event) -> None:
        _, _, probe, error = event
        self.outbox.put_urgent(ProbeFault, probe=probe, error=error, step=self.phases.snapshot.step)

    def _paused(self, event: Event) -> None:
        step = self.phases.snapshot.step
        self.outbox.put_urgent(Goodbye, reason="paused", step=step)

    def _closed(self, event: Event) -> None:
        _, now, reason = event
        self.phases.close(now)
        self.outbox.put_urgent(
            Goodbye, reason=reason, step=self.phases.snapshot.step, data_over=self.data_over
        )


def step_loss(note: StepNote) -> float | None:
    """The loss of a step: as given, else the mean over its microbatches.

    A scalar that the model returned is preferred to the tensor whose ``backward`` was called, which
    is often scaled (by a GradScaler, or by the number of microbatches).
    """
    if note.given is not None:
        return note.given
    chosen = note.outputs or note.backwards
    return sum(chosen) / len(chosen) if chosen else None
