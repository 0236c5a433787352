"""What ranks say of operators' requests: how far each is, and what came of them."""

from collections import deque
from typing import Any

import msgspec

from rankscope.protocol import messages as m

MAX_ENDS = 64
MAX_TEXT_CHARS = 500
MAX_PAUSES = 16

OVER = ("done", "given-up", "cancelled")
"""Phases of a request that is over on a rank; the first of them that any rank tells counts."""

HELD = ("arrived", "paused", "saving")
"""Phases in which the training thread stands at a boundary."""


class Row(msgspec.Struct):
    """The newest word of one rank."""

    phase: str
    since_s: float
    """Hub clock."""
    request: int
    command: str
    author: str
    boundary: int
    until_s: float | None
    """When its pause ends by itself, hub clock."""
    text: str
    saver: bool = False
    unable: str = ""
    stop_step: int = 0
    overrun: int = 0


class End(msgspec.Struct):
    """What came of one request, as the ranks tell it."""

    request: int
    command: str
    author: str
    phase: str
    boundary: int
    text: str
    at_s: float
    attempt: int
    others: int = 0
    """Ranks on which something else came of it."""


class Controls:
    """By rank, and by request; a part of the state."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.ends: dict[int, End] = {}
        """By request, the oldest first."""
        self.held: set[int] = set()
        """Ranks that stand at a boundary because an operator wants it."""
        self.stopped: set[int] = set()
        """Ranks whose loop was told to stop."""
        self.pauses: deque[tuple[float, float]] = deque(maxlen=MAX_PAUSES)
        """From when to when ranks stood still in pauses, hub clock; the oldest first."""

    def told(self, controlled: m.Controlled, since_s: float, now_s: float) -> None:
        """A rank's newest word."""
        over = controlled.phase in OVER
        if over:
            self.ended(controlled, since_s)
        row = self.rows.get(controlled.rank)
        self._paused(row, since_s, now_s)
        if over and row is not None and row.phase == "paused" and row.request != controlled.request:
            self._of_rank(row, controlled)  # done where the rank stands, and still stands
            return
        expires_s = controlled.expires_s
        self.rows[controlled.rank] = row = Row(
            phase="idle" if over else controlled.phase,
            since_s=since_s,
            request=0 if over else controlled.request,
            command="" if over else controlled.command,
            author="" if over else controlled.author,
            boundary=0 if over else controlled.boundary,
            until_s=None if expires_s is None else now_s + expires_s,
            text="" if over else controlled.text,
        )
        self._of_rank(row, controlled)
        if controlled.phase in HELD:
            self.held.add(controlled.rank)
        else:
            self.held.discard(controlled.rank)

    def _paused(self, row: Row | None, since_s: float, now_s: float) -> None:
        """A rank speaks that may have stood in a pause until now; ranks' pauses that touch are
        one."""
        if row is None or row.phase != "paused":
            return
        begin_s, end_s = row.since_s, max(row.since_s, min(since_s, now_s))
        if self.pauses and begin_s <= self.pauses[-1][1]:
            known_s = self.pauses.pop()
            begin_s, end_s = min(begin_s, known_s[0]), max(end_s, known_s[1])
        self.pauses.append((begin_s, end_s))

    def _of_rank(self, row: Row, controlled: m.Controlled) -> None:
        row.saver, row.unable = controlled.saver, controlled.unable
        row.stop_step, row.overrun = controlled.stop_step, controlled.overrun
        if controlled.stop_step:
            self.stopped.add(controlled.rank)

    def ended(self, controlled: m.Controlled, at_s: float) -> None:
        """A request is over on a rank. That it was done on any rank goes before all else."""
        if controlled.phase not in OVER or not controlled.request:
            return
        new = End(
            controlled.request,
            controlled.command,
            controlled.author,
            controlled.phase,
            controlled.boundary,
            controlled.text,
            at_s,
            controlled.attempt,
        )
        known = self.ends.get(new.request)
        if known is None or known.attempt < new.attempt:
            self.ends.pop(new.request, None)
            self.ends[new.request] = new
            while len(self.ends) > MAX_ENDS:
                del self.ends[next(iter(self.ends))]
            return
        if new.phase == known.phase:
            return
        first, second = sorted((known, new), key=lambda end: OVER.index(end.phase))
        first.others = max(first.others, second.others) + 1
        if len(first.text) < MAX_TEXT_CHARS:
            first.text += f"; rank {controlled.rank}: {second.text}"
        first.command, first.author = first.command or second.command, first.author or second.author
        self.ends[new.request] = first

    def in_work(self) -> Row | None:
        """The word of a rank that is in a request: of the one that is farthest."""
        busy = [row for row in self.rows.values() if row.request]
        return max(
            busy, key=lambda row: (row.request, row.boundary, row.phase in HELD), default=None
        )

    # --- a part of the state ------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        pass

    def forget(self, rank: int) -> None:
        self.rows.pop(rank, None)
        self.held.discard(rank)
        self.stopped.discard(rank)

    def forget_all(self) -> None:
        self.rows.clear()
        self.held.clear()
        self.stopped.clear()

    def dump(self) -> Any:
        return {
            "rows": {rank: msgspec.to_builtins(row) for rank, row in self.rows.items()},
            "ends": msgspec.to_builtins(list(self.ends.values())),
            "pauses": list(self.pauses),
        }

    def load(self, saved: Any) -> None:
        self.rows = msgspec.convert(saved["rows"], dict[int, Row])
        ends = msgspec.convert(saved["ends"], list[End])
        self.ends = {end.request: end for end in ends}
        pauses = msgspec.convert(saved.get("pauses", []), list[tuple[float, float]])
        self.pauses = deque(pauses, maxlen=MAX_PAUSES)
        self.held = {rank for rank, row in self.rows.items() if row.phase in HELD}
        self.stopped = {rank for rank, row in self.rows.items() if row.stop_step}
