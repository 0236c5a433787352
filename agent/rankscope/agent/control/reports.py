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
        self._due: tuple[Outcome | None, tuple[Any, ...] | None] = None, None
        """What was due last: the save goes on while it leaves."""
        self._over: tuple[int, int] | None = None
        """Step and request of the save whose outcome was told last: it may look in work yet."""
        saver.on_outcome.append(self.outcomes.append)

    def again(self) -> None:
        """A hub that is new knows none of it."""
        self._said = None

    def due(self, now_s: float) -> dict[str, Any] | None:
        """The fields of the next ``Saving``; None when there is nothing to say."""
        progress = self._saver.progress()
        if (progress.step, progress.request) == self._over:
            progress = progress._replace(phase="done")
        if self.outcomes:  # asked after that: what came of a save is there before the save is over
            outcome = self.outcomes[0]
            self._due = outcome, None
            return of_outcome(outcome, now_s)
        in_work, key = progress.phase in IN_WORK, _key(progress)
        if key == self._said and not (in_work and now_s - self._said_s >= EVERY_S):
            return None
        self._due = None, key
        return of_progress(progress, now_s, in_work)

    def sent(self, now_s: float) -> None:
        """What was due has left; what has come meanwhile is due next."""
        outcome, key = self._due
        if outcome is None:
            self._said, self._said_s = key, now_s
            return
        self._over = outcome.step, outcome.request
        if self.outcomes and self.outcomes[0] is outcome:
            self.outcomes.popleft()


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
        "notfinite": outcome.notfinite[: limits.MAX_TEXT_CHARS],
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
