"""Where a training thread's time goes: events in, durations out. Pure; ``now`` is an argument.

A step is a sequence of bracketed phases (data, forward, backward, optimizer); what lies in no
bracket is ``other``. Brackets nest (an L-BFGS closure runs forward and backward inside the
optimizer), and the innermost one is shown; a forward inside a backward is activation checkpointing
at work and stays backward. The durations of a step add up to ``step_s``.
"""

from typing import NamedTuple

from rankscope.protocol.messages import Phase


class Snapshot(NamedTuple):
    """What the thread is doing: replaced as a whole, so that another thread may read it."""

    step: int
    """The last completed step; 0 before the first."""
    microbatch: int
    """The microbatch in work, from 1; 0 before the step's first forward."""
    phase: Phase
    since_s: float
    activity: int
    """Counts phase changes."""


class StepTimes(NamedTuple):
    """One completed step; durations in seconds, ``t_s`` the time at which it ended."""

    step: int
    t_s: float
    step_s: float
    data_s: float
    forward_s: float
    backward_s: float
    optimizer_s: float
    other_s: float
    microbatches: int


_BRACKETS = (Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


class Phases:
    """The phase machine of one training thread. Not thread-safe; ``snapshot`` may be read."""

    def __init__(self, now: float, start_step: int = 0) -> None:
        self.snapshot = Snapshot(start_step, 0, Phase.STARTING, now, 0)
        self.before_end: Snapshot | None = None
        """What the thread was doing when it was closed."""
        self._created_s = now
        self._began_s: float | None = None
        self._open: list[tuple[Phase, Phase]] = []  # (bracket, the phase it shows)
        self._sums = dict.fromkeys(_BRACKETS, 0.0)
        self._forwards = 0
        self._backwards = 0
        self._last: StepTimes | None = None
        self._moved = False  # a bracket opened since the last step ended

    def begin(
        self, bracket: Phase, now: float, *, evaluates: bool = False, counts: bool = True
    ) -> None:
        """A bracket opens.

        A forward that evaluates is shown as ``other``. One that does not count (of a further
        model) is shown, but is no microbatch.
        """
        if self._began_s is None:
            self._began_s = now
        self._moved = True
        step, microbatch, _, _, _ = self.snapshot
        shown = bracket
        if bracket is Phase.FORWARD:
            if self._inside(Phase.BACKWARD):
                shown = Phase.BACKWARD
            elif evaluates:
                shown = Phase.OTHER
            elif counts and not self._inside(Phase.FORWARD):
                self._forwards += 1
                microbatch = self._forwards
        elif bracket is Phase.BACKWARD and not self._inside(Phase.BACKWARD):
            self._backwards += 1
            if self._forwards == 0:
                # A forward that hooks cannot see (compiled around them): what went right before.
                microbatch = self._backwards
                if self.snapshot.phase is Phase.OTHER:
                    self._sums[Phase.FORWARD] += max(0.0, now - self.snapshot.since_s)
        self._open.append((bracket, shown))
        self._show(step, microbatch, shown, now)

    def _inside(self, bracket: Phase) -> bool:
        return any(opened is bracket for opened, _ in self._open)

    def end(self, bracket: Phase, now: float) -> None:
        """A bracket closes, and with it any inside it that never did (an exception passed)."""
        for index in range(len(self._open) - 1, -1, -1):
            if self._open[index][0] is bracket:
                del self._open[index:]
                step, microbatch, _, _, _ = self.snapshot
                shown = self._open[-1][1] if self._open else Phase.OTHER
                self._show(step, microbatch, shown, now)
                return

    def complete(self, now: float) -> StepTimes:
        """A step ends here. Whatever is still open is closed with it."""
        began_s = self._created_s if self._began_s is None else self._began_s
        step, microbatch, _, _, _ = self.snapshot
        self._open.clear()
        self._show(step + 1, 0, Phase.OTHER, now)
        step_s = max(0.0, now - began_s)
        inside_s = sum(self._sums.values())
        self._last = StepTimes(
            step=step + 1,
            t_s=now,
            step_s=step_s,
            data_s=self._sums[Phase.DATA],
            forward_s=self._sums[Phase.FORWARD],
            backward_s=self._sums[Phase.BACKWARD],
            optimizer_s=self._sums[Phase.OPTIMIZER],
            other_s=max(0.0, step_s - inside_s),
            microbatches=microbatch,
        )
        self._sums = dict.fromkeys(_BRACKETS, 0.0)
        self._forwards = self._backwards = 0
        self._began_s = now
        self._moved = False
        return self._last

    @property
    def fresh(self) -> bool:
        """Whether a step just ended and nothing has begun since."""
        return self._last is not None and not self._moved

    def extend(self, now: float) -> StepTimes:
        """The step that just ended (``fresh``) in truth ends here: what came since was its tail."""
        if self._last is None or self._moved:
            raise ValueError("no step has just ended")
        more_s = max(0.0, now - self._last.t_s)
        self._last = self._last._replace(
            t_s=now, step_s=self._last.step_s + more_s, other_s=self._last.other_s + more_s
        )
        step, microbatch, _, _, _ = self.snapshot
        self._show(step, microbatch, Phase.OTHER, now)
        self._began_s = now
        return self._last

    def held(self, now: float) -> None:
        """Between two steps the thread stood still until ``now``: of neither is that a part."""
        if not self._moved:
            self._began_s = now
            step, microbatch, _, _, _ = self.snapshot
            self._show(step, microbatch, Phase.OTHER, now)

    def close(self, now: float) -> None:
        """The thread trains no more."""
        step, microbatch, _, _, _ = self.before_end = self.snapshot
        self._open.clear()
        self._show(step, microbatch, Phase.ENDED, now)

    def _show(self, step: int, microbatch: int, phase: Phase, now: float) -> None:
        _, _, old, since_s, activity = self.snapshot
        if old in self._sums:
            self._sums[old] += max(0.0, now - since_s)
        self.snapshot = Snapshot(step, microbatch, phase, now, activity + 1)
