"""Requests of operators as one rank hears and follows them, and what it says of its saves."""

import collections
import threading
import time
from typing import NamedTuple

from rankscope.agent.checkpoint.checkpointer import Checkpointer, place
from rankscope.agent.checkpoint.meeting import Outcome
from rankscope.agent.checkpoint.progress import Snapshot
from rankscope.agent.control.round import GIVEN_UP, Round

MAX_OUTCOMES = 64


class Told(NamedTuple):
    """What there is to say of this rank's saves."""

    pending: int
    """The request that is being agreed on; 0 when there is none."""
    pending_text: str
    progress: Snapshot


class Control:
    """Hears requests in the agent's thread and acts on them at boundaries of the training thread.

    ``start_step`` is what the first boundary comes after.
    """

    def __init__(self, saver: Checkpointer, start_step: int) -> None:
        self._saver = saver
        self.completed = start_step
        """The boundaries passed; each belongs to the step that ended with it."""
        self.outcomes: collections.deque[Outcome] = collections.deque(maxlen=MAX_OUTCOMES)
        """What came of saves, to be told; the oldest first."""
        self._round: Round | None = None
        self._newest = 0
        self._lock = threading.Lock()
        saver.on_outcome.append(self.outcomes.append)

    # the training thread

    def boundary(self) -> None:
        """A step has ended. Waits for nothing unless all ranks are agreeing right now."""
        self.completed += 1  # before the round is looked at: see control.round
        waiting = self._round
        if waiting is None:
            return
        agreed = waiting.boundary()
        if agreed is None or self.completed < agreed:
            return
        self._round = None
        if agreed == self.completed:
            self._saver.save(self.completed, waiting.request)
        else:
            text = f"rank {place()[0]}: {waiting.text}"
            if agreed != GIVEN_UP:
                text = f"rank {place()[0]} was beyond step {agreed}"
            self._saver.decline(self.completed, waiting.request, text)

    # the agent's thread

    def ordered(self, request: int, expires_s: float) -> None:
        """The hub passes on a request for a checkpoint, perhaps not for the first time."""
        with self._lock:
            if request <= self._newest or self._round is not None:
                return
            self._newest = request
            rank, world_size = place()
            self._round = Round(
                request,
                rank,
                world_size,
                self._saver.store,
                self._saver.prefix("control"),
                lambda: self.completed,
                time.monotonic() + expires_s,
            )
            self._round.start()

    def told(self) -> Told:
        waiting = self._round
        if waiting is None:
            return Told(0, "", self._saver.progress())
        return Told(waiting.request, waiting.text, self._saver.progress())
