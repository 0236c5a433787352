"""What operators want while the run is paused: done where the ranks stand, which is a boundary.

That of one rank, in its training thread. Which requests, and in which order, is the same on all
ranks: see :mod:`rankscope.agent.control.hold`.
"""

import time
from typing import TYPE_CHECKING

from rankscope.agent.control.hold import STOP, Hold
from rankscope.agent.control.request import CHECKPOINT, Request

if TYPE_CHECKING:
    from rankscope.agent.control.control import Control


class Standing:
    """Of one pause."""

    def __init__(self, control: "Control", hold: Hold, rank: int) -> None:
        self._control, self._hold, self._rank = control, hold, rank
        self._until_s = hold.until_s
        self._stopping: list[Request] = []
        """To be stopped for once their checkpoints are whole, which rank 0 says."""

    def look(self) -> None:
        """Do what is asked for."""
        self._hold.news.clear()
        while self._hold.asked:
            self._act(self._hold.asked.popleft())
        for request in tuple(self._stopping):
            outcome = self._control.outcomes.get(request.number)
            if outcome is not None and not outcome.ok:
                self._give_up(request, f"the run is paused still: {outcome.text}")

    def _act(self, request: Request) -> None:
        control = self._control
        if request.command == CHECKPOINT:
            control.save_standing(request, self._hold)
            self._say(request, "done", f"all ranks save after step {control.completed}")
            return
        self._stopping.append(request)
        if self._rank == 0:
            self._hold.conclude = self._conclude
        if control.saver is not None:  # the pause does not end while its checkpoint is written
            lasts_s = control.saver.timeout_s
            self._hold.until_s = max(self._hold.until_s, time.monotonic() + lasts_s)
        control.save_standing(request, self._hold)

    def _conclude(self) -> str:
        saved = (self._control.outcomes.get(one.number) for one in tuple(self._stopping))
        return STOP if any(outcome is not None and outcome.ok for outcome in saved) else ""

    def over(self) -> str:
        """The pause has ended: say what came of the rest; returns how it ended, in words."""
        step = self._control.completed
        if self._hold.word != STOP:
            for request in tuple(self._stopping):
                self._give_up(request, f"training goes on: {self._hold.word}")
            return self._hold.word
        if self._stopping:
            by, text = self._stopping[0], f"saved, and training stops after step {step}"
        else:
            by, text = self._hold.taken[-1], f"training stops after step {step}"
        self._say(by, "done", text)
        return f"ended by the {by.command} of {by.author}"

    def leave(self, why: str) -> None:
        """The training thread is torn out of it, by a signal's handler: nothing more is done."""
        while self._hold.asked:  # the other thread may add to it meanwhile
            request = self._hold.asked.popleft()
            self._control.decline(request, why)
            self._say(request, "given-up", why)

    def _give_up(self, request: Request, text: str) -> None:
        self._stopping.remove(request)
        if not self._stopping:
            self._hold.until_s = self._until_s
        author = self._control.turns.cancelled.get(request.number)
        self._say(request, "given-up" if author is None else "cancelled", text)

    def _say(self, request: Request, phase: str, text: str) -> None:
        self._control.turns.say(request, phase, self._control.completed, text)
