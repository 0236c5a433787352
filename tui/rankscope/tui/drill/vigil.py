"""How long to wait for a verdict, and what it was. Pure: times are arguments.

A finding that is not right yet may become so (a source line is known a little later), so it is
waited for until ``wait_s`` after the fault. One that is right must stay so for a moment.
"""

from dataclasses import dataclass, field

from rankscope.protocol.faults import Fault
from rankscope.protocol.shapes import Finding, Status
from rankscope.tui.drill import judge
from rankscope.tui.drill.truth import Truth

SETTLE_S = 1.5
"""A right verdict must stand this long beside what else is found."""

UNHEARD_S = 5.0
"""Of a run in which no rank has spoken by this time after the fault, nothing will be known."""

LASTING_STEPS = 25
"""A fault that lasts is found by what so many steps have in common, however long they take,"""

LASTING_WAITS = 6.0
"""but after so many times ``wait_s`` it is given up."""

START_S = 180.0
"""By then the ranks have started, on a busy machine too, and the fault has happened."""


@dataclass
class Vigil:
    """Follows one run from its start to the verdict; times are Unix time, as the truth's is."""

    fault: Fault
    began_s: float
    wait_s: float
    truth: Truth | None = None
    found: Finding | None = None
    stranger: bool = False
    """Whether it is a script of the user's own, which may not attach at all."""
    heard: bool = False
    """Whether any rank of the run is known to its hub."""
    happened_s: float | None = None
    """When the fault began to matter: a fault of the set-up does from the first step on."""
    _first_s: dict[str, float] = field(default_factory=dict)
    _right_s: float | None = None
    _step: int = 0

    def look(self, now_s: float, truth: Truth | None, status: Status | None) -> bool:
        """Take in what is known at ``now_s``; True when there is no more to wait for."""
        self.truth = truth or self.truth
        if status is not None:
            self._take(now_s, status)
        if self.stranger and self.truth is not None and not self.heard:
            # A fault of the set-up is there before the script has begun.
            patience_s = START_S if self.fault.whole_run else UNHEARD_S
            return now_s - self.truth.at_s > patience_s
        if self.truth is None or self.happened_s is None:
            return now_s - self.began_s > START_S
        if self._right_s is not None and now_s - self._right_s >= SETTLE_S:
            return True
        return self._waited(now_s - self.happened_s, self.truth)

    def _waited(self, for_s: float, truth: Truth) -> bool:
        """Whether that is long enough for a verdict to come."""
        if for_s <= self.wait_s:
            return False
        steps = self._step - (truth.injected.step or 0)
        if self.fault.one_step or self.fault.whole_run or steps >= LASTING_STEPS:
            return True
        return for_s > LASTING_WAITS * self.wait_s

    def _take(self, now_s: float, status: Status) -> None:
        # A process that a sentinel knows has attached, though it had no time to say anything.
        self.heard = self.heard or any(
            row.heard_s is not None or row.process != "unknown" for row in status.ranks
        )
        self._step = status.step
        if self.truth is None:
            return
        if self.happened_s is None and (not self.fault.whole_run or status.step >= 1):
            self.happened_s = now_s if self.fault.whole_run else self.truth.at_s
        self.found = judge.choose(self.fault, status.findings)
        if self.found is None:
            self._right_s = None
            return
        self._first_s.setdefault(self.found.kind, now_s)
        critical = [f for f in status.findings if f.severity == "critical"]
        if judge.wrong(self.fault, self.truth.injected, self.found, critical):
            self._right_s = None
        elif self._right_s is None:
            self._right_s = now_s

    def latency_s(self) -> float | None:
        """From the fault to the first sight of what was found."""
        if self.found is None or self.happened_s is None:
            return None
        return max(0.0, self._first_s[self.found.kind] - self.happened_s)

    def after_step_s(self) -> float | None:
        """From the end of the fault's step to the first sight of what was found; 0 where it was
        found in that step. None of a fault that lasts, or whose step was not over by then."""
        if self.found is None or self.truth is None or self.truth.step_over_s is None:
            return None
        if self.fault.whole_run or not self.fault.one_step:
            return None
        return max(0.0, self._first_s[self.found.kind] - self.truth.step_over_s)
