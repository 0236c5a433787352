"""An operator's request on its way to the ranks: one at a time, until they have followed it. Pure.

The ranks agree among themselves on when; here is only whom to tell, how long, and what to say of
it meanwhile.
"""

from dataclasses import dataclass

from rankscope.hub.state import RunState
from rankscope.protocol.messages import Order

AGAIN_S = 1.0
"""Ranks that do not seem to have heard are told again after this."""

EXPIRES_S = 600.0

MAX_SHOWN = 4


@dataclass
class Pending:
    """A request in work."""

    request: int
    command: str
    author: str
    asked_s: float
    told_s: float = -1e18


class Orders:
    """The one request that is in work, if any."""

    def __init__(self) -> None:
        self.pending: Pending | None = None
        self._newest = 0

    def checkpoint(self, state: RunState, author: str, now_s: float) -> tuple[bool, str, int]:
        """Whether a checkpoint can be asked for now, in words, and the number of the request."""
        if self.pending is not None:
            return False, f"{self.pending.author} has asked for a checkpoint already", 0
        savers = sorted(state.saves.rows)
        if not savers:
            return False, "this run has no checkpointer: attach(…, checkpoint=Checkpointer(…))", 0
        absent = [rank for rank in range(state.size()) if rank not in state.saves.rows]
        if absent:
            return False, f"{some(absent)} has no checkpointer, or has not been heard of", 0
        silent = [rank for rank in savers if not bool(state.ranks.boundary[rank])]
        if silent:
            return False, f"{some(silent)} gave no boundary yet: no call of end_step", 0
        # Larger than any before, also before a restart of the hub.
        self._newest = max(self._newest + 1, int(now_s * 1000))
        self.pending = Pending(self._newest, "checkpoint", author, now_s)
        return True, f"asked {len(savers)} ranks for a checkpoint", self._newest

    def due(self, state: RunState, now_s: float) -> list[tuple[int, Order]]:
        """Whom to tell now. A request that is done with is forgotten."""
        pending = self.pending
        if pending is None:
            return []
        left_s = pending.asked_s + EXPIRES_S - now_s
        if state.saves.of_request(pending.request) is not None or left_s <= 0:
            self.pending = None
            return []
        if now_s - pending.told_s < AGAIN_S:
            return []
        pending.told_s = now_s
        order = Order(pending.command, pending.request, left_s, pending.author)
        return [
            (rank, order)
            for rank, row in state.saves.rows.items()
            if pending.request not in (row.pending, row.request)
        ]

    def text(self, state: RunState, now_s: float) -> str:
        """How far the request in work is, in words; empty when there is none."""
        pending = self.pending
        if pending is None:
            return ""
        if state.saves.in_work():
            return "saving"
        agreed = [row.text for row in state.saves.rows.values() if row.pending == pending.request]
        unheard = [r for r, row in state.saves.rows.items() if row.pending != pending.request]
        if unheard:
            return f"pending: {some(sorted(unheard))} has not heard of it"
        busy = {
            rank: state.progress.expecting[rank]
            for rank in state.saves.rows
            if rank in state.progress.expecting
        }
        if busy:
            rank, what = sorted(busy.items())[0]
            return f"pending: rank {rank} is in {what}"
        return f"pending: {agreed[0]}" if agreed and agreed[0] else "pending"


def some(ranks: list[int]) -> str:
    shown = " ".join(map(str, ranks[:MAX_SHOWN]))
    more = f" and {len(ranks) - MAX_SHOWN} more" if len(ranks) > MAX_SHOWN else ""
    return f"rank{'s' * (len(ranks) > 1)} {shown}{more}"
