"""The steps of the run: one entry a step, filled as the ranks complete it."""

import math
from typing import Any

import msgspec

from rankscope.protocol import limits
from rankscope.protocol import messages as m

KEPT_STEPS = 512
"""Entries kept: what the screen shows, and slack for ranks that are ahead."""


class StepEntry(msgspec.Struct, array_like=True):
    """Sums over the ranks that reported the step."""

    attempt: int
    ranks: int = 0
    step_s: float = 0.0
    data_s: float = 0.0
    forward_s: float = 0.0
    backward_s: float = 0.0
    optimizer_s: float = 0.0
    other_s: float = 0.0
    tokens: int = 0
    token_ranks: int = 0
    loss: float = 0.0
    loss_ranks: int = 0
    grad_norm: float | None = None
    """Of a rank that holds the whole gradient."""
    grad_squares: float = 0.0
    """Sum of the squared norms of shards."""
    grad_shards: int = 0
    done_s: float = -math.inf
    """When the last of them completed it, hub clock."""
    waited_s: float = 0.0
    """Waiting in collectives, of the ranks of which that is known."""
    waited_ranks: int = 0

    def mean_loss(self) -> float | None:
        return self.loss / self.loss_ranks if self.loss_ranks else None

    def mean_step_s(self) -> float | None:
        return self.step_s / self.ranks if self.ranks else None

    def mean_waited_s(self) -> float | None:
        return self.waited_s / self.waited_ranks if self.waited_ranks else None

    def global_grad_norm(self, world_size: int) -> float | None:
        """L2 norm over all shards; None while one of them is missing."""
        if self.grad_norm is not None:
            return self.grad_norm
        if self.grad_shards and self.grad_shards >= world_size:
            return math.sqrt(self.grad_squares)
        return None


class History:
    """The newest steps by number. A later attempt's entry replaces an earlier one's."""

    def __init__(self) -> None:
        self.entries: dict[int, StepEntry] = {}

    def record(self, attempt: int, record: m.StepRecord, done_s: float) -> None:
        """Add one rank's completed step."""
        entry = self._entry(attempt, record.step)
        entry.ranks += 1
        entry.step_s += record.step_s
        entry.data_s += record.data_s
        entry.forward_s += record.forward_s
        entry.backward_s += record.backward_s
        entry.optimizer_s += record.optimizer_s
        entry.other_s += record.other_s
        if record.tokens is not None:
            entry.tokens = min(limits.MAX_COUNT, entry.tokens + record.tokens)
            entry.token_ranks += 1
        if record.waited_s:
            entry.waited_s += sum(record.waited_s)
            entry.waited_ranks += 1
        if done_s > entry.done_s:
            entry.done_s = done_s
        self._values(entry, record.loss, record.grad_norm, record.grad_norm_sharded)

    def late(
        self,
        attempt: int,
        step: int,
        values: tuple[float | None, float | None],
        sharded: bool,
    ) -> None:
        """Add values (loss, gradient norm) that came off the device after the step's record."""
        entry = self.entries.get(step)
        if entry is not None and entry.attempt == attempt:
            self._values(entry, *values, sharded)

    def _values(
        self, entry: StepEntry, loss: float | None, grad_norm: float | None, sharded: bool
    ) -> None:
        if loss is not None:
            entry.loss += loss
            entry.loss_ranks += 1
        if grad_norm is not None:
            if sharded:
                entry.grad_squares += grad_norm * grad_norm
                entry.grad_shards += 1
            else:
                entry.grad_norm = grad_norm

    def _entry(self, attempt: int, step: int) -> StepEntry:
        entry = self.entries.get(step)
        if entry is None or entry.attempt < attempt:
            self.entries.pop(step, None)
            entry = self.entries[step] = StepEntry(attempt)
            if len(self.entries) > KEPT_STEPS:
                # Oldest first by making, which is by number but for restarts.
                del self.entries[next(iter(self.entries))]
        return entry

    def completed(self, step: int, count: int) -> list[tuple[int, StepEntry]]:
        """Up to ``count`` entries of steps not beyond ``step``, oldest first."""
        found = sorted(item for item in self.entries.items() if item[0] <= step)
        return found[-count:]

    def dump(self) -> list[Any]:
        return [[step, msgspec.to_builtins(entry)] for step, entry in self.entries.items()]

    def load(self, saved: Any) -> None:
        pairs = msgspec.convert(saved, list[tuple[int, StepEntry]])
        self.entries = dict(pairs)
