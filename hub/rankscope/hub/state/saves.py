"""What ranks say of their checkpoints: who is how far, what came of each, and the newest one."""

import math
from typing import Any

import msgspec

from rankscope.protocol import messages as m
from rankscope.protocol import resumed

MAX_OUTCOMES = 64
MAX_BEGUN = 16

IN_WORK = ("staging", "waiting", "writing", "syncing", "publishing")


class Row(msgspec.Struct):
    """The newest word of one rank."""

    step: int
    request: int
    phase: str
    since_s: float
    """Since when it is in the phase, hub clock."""
    done_bytes: int
    total_bytes: int
    rate_bytes_per_s: float | None
    text: str
    pending: int


class Outcome(msgspec.Struct):
    """What came of one save, as the ranks tell it."""

    step: int
    request: int
    ok: bool
    at_s: float
    path: str
    text: str
    culprit: int
    """-1 for none in particular."""
    culprit_phase: str
    size_bytes: int
    attempt: int = 0
    took_s: float | None = None
    """From the first rank's boundary; None where that was not heard of."""
    notfinite: str = ""
    """What it holds that is not finite, in words."""


class Resumed(msgspec.Struct):
    """What the ranks of an attempt go on from."""

    step: int
    path: str
    """Empty where that is not known."""
    attempt: int
    notfinite: str = ""
    """As of an outcome."""


class Saves:
    """By rank, and over the whole run; a part of the state."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.outcomes: list[Outcome] = []
        """The oldest first."""
        self.last: Outcome | None = None
        """The newest one that succeeded."""
        self.resumed: Resumed | None = None
        """None where the ranks began at step 1."""
        self.begun: dict[tuple[int, int], float] = {}
        """By step and request, when the first rank began the save, hub clock; the newest ones."""

    def hello(self, hello: m.Hello) -> None:
        """A rank says what it goes on from: all do, and the first that knows the path is heard."""
        found = resumed.heard(hello.facts, hello.start_step)
        if found is not None and (self.resumed is None or not self.resumed.path):
            self.resumed = Resumed(found.step, found.path, hello.attempt, found.notfinite)

    def back(self) -> Outcome | Resumed | None:
        """The newest checkpoint that there is to go back to: what the ranks went on from, until
        one has been saved since."""
        last, found = self.last, self.resumed
        if found is None or not found.path:
            return last
        if last is None or (found.attempt > last.attempt and found.path != last.path):
            return found
        return last

    def finite(self, before: float = math.inf) -> Outcome | Resumed | None:
        """The newest of a step before that one, which holds nothing that is known not to be
        finite."""
        good: list[Outcome | Resumed] = [one for one in self.outcomes if one.ok]
        good += [] if self.last is None else [self.last]
        if self.resumed is not None and self.resumed.path:
            good.append(self.resumed)
        usable = [one for one in good if not one.notfinite and one.step < before]
        return max(usable, key=lambda one: (one.attempt, one.step), default=None)

    def told(self, saving: m.Saving, since_s: float) -> None:
        """A rank's word on what it is doing, or on what came of it."""
        if saving.phase in ("done", "failed"):
            self.ended(saving, since_s)
            return
        self.rows[saving.rank] = Row(
            saving.step,
            saving.request,
            saving.phase,
            since_s,
            saving.done_bytes,
            saving.total_bytes,
            saving.rate_bytes_per_s,
            saving.text,
            saving.pending,
        )
        if saving.phase in IN_WORK:
            self._began((saving.step, saving.request), since_s)

    def _began(self, save: tuple[int, int], at_s: float) -> None:
        self.begun[save] = min(self.begun.get(save, at_s), at_s)
        while len(self.begun) > MAX_BEGUN:
            del self.begun[next(iter(self.begun))]

    def ended(self, saving: m.Saving, at_s: float) -> None:
        """A save ended on a rank. All ranks tell of it: a failure of which the rank is known goes
        before one of which it is not, and that it was published before all else."""
        if saving.phase not in ("done", "failed"):
            return
        row = self.rows.get(saving.rank)
        if row is not None and (row.step, row.request) == (saving.step, saving.request):
            row.phase, row.since_s, row.step, row.request = "idle", at_s, 0, 0
        new = Outcome(
            saving.step,
            saving.request,
            saving.phase == "done",
            at_s,
            saving.path,
            saving.text,
            saving.culprit,
            saving.culprit_phase,
            saving.total_bytes,
            saving.attempt,
            notfinite=saving.notfinite,
        )
        begun_s = self.begun.get((saving.step, saving.request))
        if begun_s is not None:
            new.took_s = max(0.0, at_s - begun_s)
        known = self.outcome(saving.step, saving.request, saving.attempt)
        if known is None:
            self.outcomes.append(new)
            del self.outcomes[:-MAX_OUTCOMES]
        elif (new.ok, new.culprit >= 0) > (known.ok, known.culprit >= 0):
            self.outcomes[self.outcomes.index(known)] = new
        else:
            return
        if new.ok and (self.last is None or new.at_s >= self.last.at_s):
            self.last = new

    def outcome(self, step: int, request: int, attempt: int) -> Outcome | None:
        """Of the save of ``step``; of an operator's, whatever the step on that rank."""
        for known in reversed(self.outcomes):
            same = known.request == request if request else known.step == step
            if same and known.request == request and known.attempt == attempt:
                return known
        return None

    def of_request(self, request: int) -> Outcome | None:
        return next((one for one in self.outcomes if one.request == request), None)

    def in_work(self) -> dict[int, Row]:
        """The ranks that are in a save now."""
        return {rank: row for rank, row in sorted(self.rows.items()) if row.phase in IN_WORK}

    # --- a part of the state ------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        pass

    def forget(self, rank: int) -> None:
        self.rows.pop(rank, None)

    def forget_all(self) -> None:
        self.rows.clear()
        self.begun.clear()
        self.resumed = None

    def dump(self) -> Any:
        return {
            "rows": {rank: msgspec.to_builtins(row) for rank, row in self.rows.items()},
            "outcomes": msgspec.to_builtins(self.outcomes),
            "last": msgspec.to_builtins(self.last),
            "resumed": msgspec.to_builtins(self.resumed),
            "begun": [[*save, at_s] for save, at_s in self.begun.items()],
        }

    def load(self, saved: Any) -> None:
        self.rows = msgspec.convert(saved["rows"], dict[int, Row])
        self.outcomes = msgspec.convert(saved["outcomes"], list[Outcome])
        self.last = msgspec.convert(saved["last"], Outcome | None)
        self.resumed = msgspec.convert(saved.get("resumed"), Resumed | None)
        begun = msgspec.convert(saved.get("begun", []), list[tuple[int, int, float]])
        self.begun = {(step, request): at_s for step, request, at_s in begun[-MAX_BEGUN:]}
