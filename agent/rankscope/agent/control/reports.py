"""What a rank tells the hub of its saves: when something changes, and now and then meanwhile."""

import collections
from typing import TYPE_CHECKING, Any

from rankscope.protocol import limits

if TYPE_CHECKING:
    from rankscope.agent.checkpoint.checkpointer import Checkpointer
    from rankscope.agent.checkpoint.meeting import Outcome
    from rankscope.agent.checkpoint.progress import Snapshot

IN_WORK = frozenset({"staging", "waiting", "writing", "syncing", "publishing"})

EVERY_S = 0.5
"""Between two words on a save that goes on."""

MAX_OUTCOMES = 64


class Reports:
    """Decides what is due; whoever sends says what has left."""

    def __init__(self, saver: "Checkpointer") -> None:
        self.outcomes: collections.deque[Outcome] = collections.deque(maxlen=MAX_OUTCOMES)
        """What came of saves, to be told; the oldest first."""
        self._saver = saver
        self._said: tuple[Any, ...] | None = None
        self._said_s = -1e9
        saver.on_outcome.append(self.outcomes.append)

    def again(self) -> None:
        """A hub that is new knows none of it."""
        self._said = None

    def due(self, now_s: float) -> dict[str, Any] | None:
        """The fields of the next ``Saving``; None when there is nothing to say."""
        if self.outcomes:
            return of_outcome(self.outcomes[0], now_s)
        progress = self._saver.progress()
        in_work = progress.phase in IN_WORK
        if _key(progress) == self._said and not (in_work and now_s - self._said_s >= EVERY_S):
            return None
        return of_progress(progress, now_s, in_work)

    def sent(self, now_s: float) -> None:
        """What was due has left."""
        if self.outcomes:
            self.outcomes.popleft()
            return
        self._said, self._said_s = _key(self._saver.progress()), now_s


def _key(progress: "Snapshot") -> tuple[Any, ...]:
    """What is worth a word when it changes."""
    phase = progress.phase if progress.phase in IN_WORK else "idle"
    return progress.step, progress.request, phase


def of_outcome(outcome: "Outcome", now_s: float) -> dict[str, Any]:
    return {
        "step": outcome.step,
        "request": outcome.request,
        "phase": "done" if outcome.ok else "failed",
        "phase_t_s": now_s,
        "total_bytes": outcome.size_bytes,
        "text": outcome.text[: limits.MAX_TEXT_CHARS],
        "path": outcome.path[: limits.MAX_TEXT_CHARS],
        "culprit": outcome.rank,
        "culprit_phase": outcome.phase,
    }


def of_progress(progress: "Snapshot", now_s: float, in_work: bool) -> dict[str, Any]:
    return {
        "step": progress.step if in_work else 0,
        "request": progress.request if in_work else 0,
        "phase": progress.phase if in_work else "idle",
        "phase_t_s": now_s - progress.phase_s,
        "done_bytes": progress.done_bytes if in_work else 0,
        "total_bytes": progress.total_bytes if in_work else 0,
        "rate_bytes_per_s": progress.rate_bytes_per_s if in_work else None,
    }
