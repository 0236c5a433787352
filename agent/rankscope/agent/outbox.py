"""What is on its way to the hub. Pure; the sending thread's own.

A step is forgotten only once it was sent. While there is no hub the oldest steps go first, and
every one is counted. Of messages of their own the first and the newest are kept: the first say
where a trouble began, and what lies between repeats them.
"""

from collections import deque
from typing import Any

from rankscope.protocol import limits
from rankscope.protocol.messages import FromRank, LateValues, ParameterNorms, Signs, StepRecord

MAX_STEPS = 4096
"""Steps kept while there is no hub (about 1 MiB)."""

MAX_URGENT = 64
"""Messages of their own kept while there is no hub."""

FIRST_KEPT = 32
"""The first of them stay whatever comes."""

REPEATED = (Signs, ParameterNorms)
"""What a rank in trouble says again with each step: the first to be thrown away."""

MAX_CHECKS = 32
"""Checksums kept while there is no hub: older ones are of no use to anybody."""

RESEND_STEPS = 32
"""Steps sent lately that are sent again to a hub that does not know this rank any more."""


class Outbox:
    """Steps, late values, and messages of their own, each in order."""

    def __init__(self, max_steps: int = MAX_STEPS) -> None:
        self.max_steps = max_steps
        self.dropped = 0
        """Steps thrown away since the beginning."""
        self._steps: deque[StepRecord] = deque()
        self._late: deque[LateValues] = deque(maxlen=max_steps)
        self._urgent: deque[tuple[type[FromRank], dict[str, Any]]] = deque()
        self._checks: deque[tuple[type[FromRank], dict[str, Any]]] = deque(maxlen=MAX_CHECKS)
        self._sent: deque[StepRecord] = deque(maxlen=RESEND_STEPS)

    def put_step(self, record: StepRecord) -> None:
        """A completed step; the newest step again replaces its earlier record."""
        if self._steps and self._steps[-1].step == record.step:
            self._steps[-1] = record
            return
        self._steps.append(record)
        if len(self._steps) > self.max_steps:
            self._steps.popleft()
            self.dropped += 1

    def put_late(self, values: LateValues) -> None:
        self._late.append(values)

    def put_urgent(self, kind: type[FromRank], **fields: Any) -> None:
        """A message of its own, without its head (attempt, rank, seq, t_s)."""
        if len(self._urgent) >= MAX_URGENT:
            del self._urgent[self._least_wanted()]
        self._urgent.append((kind, fields))

    def put_check(self, kind: type[FromRank], **fields: Any) -> None:
        """A message of its own that may wait, and of which the newest matter."""
        self._checks.append((kind, fields))

    def next_check(self) -> tuple[type[FromRank], dict[str, Any]] | None:
        return self._checks[0] if self._checks else None

    def check_sent(self) -> None:
        self._checks.popleft()

    def lost(self, steps: int) -> None:
        """``steps`` (0 or more) were lost before they came here."""
        self.dropped += max(0, steps)

    def steps(self) -> tuple[StepRecord, ...]:
        """The oldest unsent steps, as many as fit into one beat."""
        return _first(self._steps)

    def late(self) -> tuple[LateValues, ...]:
        return _first(self._late)

    def sent(self, steps: int, late: int) -> None:
        """The first ``steps`` and ``late`` have left."""
        for _ in range(steps):
            self._sent.append(self._steps.popleft())
        for _ in range(late):
            self._late.popleft()

    def send_again(self) -> None:
        """The hub has forgotten this rank: put the last steps that were sent first in line."""
        self._steps.extendleft(reversed(self._sent))
        self._sent.clear()

    def _least_wanted(self) -> int:
        """The index of the oldest repeated message beyond the first ones, else of the oldest."""
        later = range(FIRST_KEPT, len(self._urgent))
        return next((at for at in later if self._urgent[at][0] in REPEATED), FIRST_KEPT)

    def next_urgent(self) -> tuple[type[FromRank], dict[str, Any]] | None:
        return self._urgent[0] if self._urgent else None

    def urgent_sent(self) -> None:
        self._urgent.popleft()


def _first(backlog: "deque[Any]") -> tuple[Any, ...]:
    count = min(len(backlog), limits.MAX_STEPS_PER_BEAT)
    return tuple(backlog[index] for index in range(count))
