"""What is on its way to the hub: filled by the training thread, emptied by the sending thread.

The training thread only ever appends to bounded deques and so never waits. The sending thread
moves everything into a backlog of its own and forgets a step only once it was sent. When there is
no hub for long, the oldest steps go first, and every one is counted.
"""

from collections import deque
from typing import Any

from rankscope.protocol import limits
from rankscope.protocol.messages import FromRank, LateValues, StepRecord

MAX_STEPS = 4096
"""Steps kept while there is no hub (about 1 MiB)."""

MAX_URGENT = 64
RESEND_STEPS = 32
"""Steps sent lately that are sent again to a hub that does not know this rank any more."""


class Outbox:
    """One training thread puts in, one sending thread takes out."""

    def __init__(self, max_steps: int = MAX_STEPS) -> None:
        self.max_steps = max_steps
        self._steps: deque[StepRecord] = deque(maxlen=max_steps)
        self._late: deque[LateValues] = deque(maxlen=max_steps)
        self._urgent: deque[tuple[type[FromRank], dict[str, Any]]] = deque(maxlen=MAX_URGENT)
        self._overflowed = 0  # written by the training thread alone
        self._backlog: deque[StepRecord] = deque()
        self._late_backlog: deque[LateValues] = deque(maxlen=max_steps)
        self._sent: deque[StepRecord] = deque(maxlen=RESEND_STEPS)
        self._dropped = 0  # written by the sending thread alone

    # the training thread

    def put_step(self, record: StepRecord) -> None:
        """A completed step; the same step again replaces the earlier record."""
        if len(self._steps) == self.max_steps:
            self._overflowed += 1
        self._steps.append(record)

    def put_late(self, values: LateValues) -> None:
        self._late.append(values)

    def put_urgent(self, kind: type[FromRank], **fields: Any) -> None:
        """A message of its own, without its head (attempt, rank, seq, t_s)."""
        self._urgent.append((kind, fields))

    # the sending thread

    @property
    def dropped(self) -> int:
        """Steps thrown away since the beginning."""
        return self._overflowed + self._dropped

    def collect(self) -> None:
        """Move what came in into the backlog, dropping the oldest beyond the limit."""
        while self._steps:
            record = self._steps.popleft()
            if self._backlog and self._backlog[-1].step == record.step:
                self._backlog[-1] = record
            else:
                self._backlog.append(record)
        while len(self._backlog) > self.max_steps:
            self._backlog.popleft()
            self._dropped += 1
        while self._late:
            self._late_backlog.append(self._late.popleft())

    def steps(self) -> tuple[StepRecord, ...]:
        """The oldest unsent steps, as many as fit into one beat."""
        return _first(self._backlog)

    def late(self) -> tuple[LateValues, ...]:
        return _first(self._late_backlog)

    def sent(self, steps: int, late: int) -> None:
        """The first ``steps`` and ``late`` of the backlog have left."""
        for _ in range(steps):
            self._sent.append(self._backlog.popleft())
        for _ in range(late):
            self._late_backlog.popleft()

    def send_again(self) -> None:
        """The hub has forgotten this rank: put the last steps that were sent first in line."""
        self._backlog.extendleft(reversed(self._sent))
        self._sent.clear()

    def next_urgent(self) -> tuple[type[FromRank], dict[str, Any]] | None:
        return self._urgent[0] if self._urgent else None

    def urgent_sent(self) -> None:
        self._urgent.popleft()

    @property
    def waiting(self) -> bool:
        """Whether anything that was put in has not left yet."""
        return bool(self._steps or self._late or self._urgent or self._backlog)


def _first(backlog: "deque[Any]") -> tuple[Any, ...]:
    count = min(len(backlog), limits.MAX_STEPS_PER_BEAT)
    return tuple(backlog[index] for index in range(count))
