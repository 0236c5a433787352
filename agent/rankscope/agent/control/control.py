"""Requests of operators as one rank hears them, and as its training thread follows them."""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

from rankscope.agent.control import round as rounds
from rankscope.agent.control.hold import STOP as HOLD_STOP
from rankscope.agent.control.hold import Hold
from rankscope.agent.control.request import (
    AGREED_ON,
    CHECKPOINT,
    CHECKPOINT_AND_STOP,
    PAUSE,
    STOP,
    Request,
)
from rankscope.agent.control.round import Gate, Round, pass_by
from rankscope.agent.control.standing import Standing
from rankscope.agent.control.turns import Turns
from rankscope.agent.evidence import expecting

log = logging.getLogger("rankscope")

PAUSE_S = 1800.0
SLICE_S = 0.25
MORE_S = 60.0
"""Beyond its time, should the thread that ends a hold be no more."""

MAX_OUTCOMES = 64

During = Callable[[str], AbstractContextManager[Any]]


class Saver(Protocol):
    """What is used of a Checkpointer."""

    timeout_s: float
    on_outcome: list[Callable[[Any], None]]

    def save(self, step: int, request: int = 0) -> Any: ...

    def decline(self, step: int, request: int, text: str) -> None: ...

    def cancel(self, request: int) -> None: ...

    def hurry(self) -> None: ...

    @property
    def saving(self) -> bool: ...


class Now(NamedTuple):
    """How far this rank is with the request in work."""

    phase: str
    since_s: float
    request: Request | None
    boundary: int
    text: str
    expires_s: float | None


class Control:
    """``start_step`` is what the first boundary comes after; for the others see :class:`Turns`.

    ``during`` is entered while this rank stands at a boundary, with what it is doing there.
    """

    def __init__(
        self,
        start_step: int,
        prefix: str,
        place: Callable[[], tuple[int, int]],
        store: Callable[[], Any],
        during: During = nullcontext,
    ) -> None:
        self.start_step = start_step
        self.completed = start_step
        """The boundaries passed; each belongs to the step that ended with it."""
        self.stop_step = 0
        """The boundary after which training was told to stop; 0 while it was not."""
        self.unable = ""
        """Why this rank follows no requests; empty when it does."""
        self.saver: Saver | None = None
        self.turns = Turns(prefix, place, store, lambda: self.completed, start_step, self.decline)
        self._during = during
        self.outcomes: dict[int, Any] = {}
        """Of saves that were asked for, by request."""

    def save_with(self, saver: Saver) -> None:
        """Follow requests for checkpoints with ``saver``; the first call counts."""
        if self.saver is None:
            saver.on_outcome.append(self._saved)
            self.saver = saver

    # --- the training thread ------------------------------------------------------------------

    def boundary(self) -> bool:
        """A step has ended. Whether training is to go on.

        Waits for nothing unless all ranks are agreeing right now, or stand here together.
        """
        self.completed += 1  # before the round is looked at: see control.round
        waiting = self.turns.round
        if waiting is not None:
            self._at(waiting)
        return self.stop_step == 0

    def _at(self, one: Round) -> None:
        gate = pass_by(one, self.completed)
        if gate is Gate.ACT:
            self._act(one)
        elif gate is Gate.OVER and one.verdict is not None and one.verdict.acts:
            text = f"rank {self._rank} was beyond step {one.verdict.boundary}"
            self.decline(one.request, text)
            self.turns.finish(one, "given-up", text)

    def _act(self, one: Round) -> None:
        request, here = one.request, self.completed
        if request.command == CHECKPOINT:
            one.acted = True  # before it is looked at who has cancelled it: see Turns.call_off
            author = self.turns.cancelled.get(request.number)
            self._save(request)
            if author is None:
                self.turns.finish(one, "done", f"all ranks save after step {here}")
            else:
                self.turns.finish(one, "cancelled", f"cancelled by {author}")
        elif request.command == PAUSE:
            text = f"nobody resumed it within {request.lasts_s / 60:.0f} min"
            self._stand(one, self._new_hold(request.lasts_s, text), expecting.PAUSE)
        elif request.command == STOP or self.saver is None:
            self._stop()
            self.turns.finish(one, "done", f"training stops after step {here}")
        else:
            self._save_and_stop(one, self.saver)

    def _save(self, request: Request) -> None:
        author = self.turns.cancelled.get(request.number)
        if author is not None:
            self.decline(request, f"cancelled by {author}")
        elif self.saver is not None:
            self.saver.save(self.completed, request.number)

    def save_standing(self, request: Request, hold: Hold) -> None:
        """Save while training stands, and waits for it, perhaps against a scheduler's clock."""
        saver = self.saver
        if saver is None:
            return
        slices = int((saver.timeout_s + MORE_S) / SLICE_S)
        while saver.saving and slices > 0 and not hold.over.wait(SLICE_S):
            slices -= 1  # one that was under way before goes first
        self._save(request)
        saver.hurry()

    def _save_and_stop(self, one: Round, saver: Saver) -> None:
        hold = self._new_hold(saver.timeout_s + MORE_S, "the save did not come to an end in time")
        if self._rank == 0:
            hold.conclude = lambda: self._saved_word(one.request)
        self._stand(one, hold, "checkpoint", lambda: self.save_standing(one.request, hold))

    def _saved_word(self, request: Request) -> str:
        """The word that ends a hold for the save of ``request``; empty while that is in work."""
        outcome = self.outcomes.get(request.number)
        if outcome is None:
            return ""
        return HOLD_STOP if outcome.ok else outcome.text or "the save failed"

    def _new_hold(self, lasts_s: float, expired: str) -> Hold:
        place = self.turns.place()
        return Hold(self.turns.prefix(), *place, time.monotonic(), lasts_s, expired)

    def _stand(
        self, one: Round, hold: Hold, what: str, first: Callable[[], None] | None = None
    ) -> None:
        """Stay here until the hold is over: in slices, so that signals act and the GIL is free."""
        self.turns.hold = hold
        self.turns.wake()
        saver = self.saver
        pause = Standing(self, hold, self._rank) if one.request.command == PAUSE else None
        try:
            with self._during(what):
                if first is not None:
                    first()
                more_s = MORE_S + (saver.timeout_s if pause and saver else 0.0)
                slices = int((hold.lasts_s + more_s) / SLICE_S)
                while not hold.over.is_set() and slices > 0:
                    if not hold.news.wait(SLICE_S):
                        slices -= 1
                    if pause is not None:
                        pause.look()
                if pause is not None:
                    pause.look()  # what was asked for before it was over
        finally:  # also when a signal's handler raises
            left = f"rank {self._rank} has left it"
            if pause is not None:
                pause.leave(left)
            if not hold.word:
                hold.end(left)
                self.turns.wake()
        here = self.completed
        if hold.word == HOLD_STOP:
            self._stop()
        if pause is not None:
            self.turns.finish(one, "done", f"paused after step {here}, {pause.over()}")
        elif hold.word == HOLD_STOP:
            self.turns.finish(one, "done", f"saved, and training stops after step {here}")
        else:
            author = self.turns.cancelled.get(one.request.number)
            phase = "given-up" if author is None else "cancelled"
            self.turns.finish(one, phase, f"training goes on: {hold.word}")

    def _stop(self) -> None:
        self.stop_step = self.completed
        log.warning("rankscope: training is to stop after step %d, as was asked", self.completed)

    # --- the agent's thread -------------------------------------------------------------------

    def ordered(
        self,
        command: str,
        number: int,
        expires_s: float,
        author: str,
        target: int = 0,
        lasts_s: float = 0.0,
    ) -> None:
        """The hub passes on what an operator wants, perhaps not for the first time."""
        turns = self.turns
        with turns.lock:
            if number in turns.known or self.completed == self.start_step:
                return  # before the first boundary it is not known who the ranks are
            turns.known.add(number)
            one, hold = turns.round, turns.hold
            if command == "cancel":
                self._cancel(target, author)
            elif command == "resume":
                if hold is not None and one is not None and one.request.command == PAUSE:
                    hold.end(f"resumed by {author}")
            elif command in AGREED_ON:
                request = Request(number, command, author, expires_s, lasts_s or PAUSE_S)
                if number in turns.cancelled:
                    by = turns.cancelled[number]
                    turns.say(request, "cancelled", 0, f"cancelled by {by}")
                else:
                    turns.wants.append(request)
        turns.wake()

    def _cancel(self, target: int, author: str) -> None:
        turns, saver = self.turns, self.saver
        turns.cancelled[target] = author
        one, hold = turns.round, turns.hold
        heard = [want for want in turns.wants if want.number == target]
        turns.wants = [want for want in turns.wants if want.number != target]
        if one is not None and one.request.number == target:
            if hold is not None and one.request.command == PAUSE:
                hold.end(f"cancelled by {author}")
            one.cancel(author)
            turns.call_off(one)
        elif heard or (target and target not in turns.known):
            turns.known.add(target)
            request = heard[0] if heard else Request(target, "", "")
            turns.say(request, "cancelled", 0, f"cancelled by {author}")
        if saver is not None:
            saver.cancel(target)

    def now(self, now_s: float) -> Now:
        """How far this rank is. From any thread."""
        one, hold = self.turns.round, self.turns.hold
        if one is None or self.turns.called_off(one):
            return Now("idle", now_s, None, 0, "", None)
        if hold is not None:
            phase = "paused" if one.request.command == PAUSE else "saving"
            left_s = max(0.0, hold.until_s - now_s) if phase == "paused" else None
            text = f"{phase} after step {one.boundary}"
            return Now(phase, hold.since_s, one.request, one.boundary, text, left_s)
        words = {rounds.Phase.READY: "waiting", rounds.Phase.OVER: "agreed"}
        phase = words.get(one.phase, one.phase.value)
        return Now(phase, one.since_s, one.request, one.boundary, one.text, None)

    def close(self, why: str) -> None:
        """This rank takes part no more; does not wait."""
        known = self.completed != self.start_step
        self.turns.close(f"rank {self._rank if known else '?'} {why}")

    @property
    def overrun(self) -> int:
        """How many boundaries training has passed since it was told to stop."""
        return self.completed - self.stop_step if self.stop_step else 0

    # --- signals, see control.signals ---------------------------------------------------------

    def listen(self) -> None:
        """Look now and then whether another rank was asked by a signal."""
        self.turns.listening = True
        self.turns.wake()

    def ring(self, number: int, name: str) -> None:
        """This process was sent the signal ``number``: save and stop. From any thread."""
        turns = self.turns
        command = STOP if self.saver is None else CHECKPOINT_AND_STOP
        try:
            author = f"a signal ({name}) on rank {self._rank}"
        except Exception:  # noqa: BLE001 - without a group: the signal acts as it would without us
            author = f"a signal ({name})"
        with turns.lock:
            one = turns.round
            if one is None or not one.request.signal:
                if not any(want.signal for want in turns.wants):
                    turns.wants.insert(0, Request(0, command, author, signal=number))
                turns.make_way(one)
        turns.wake()

    @property
    def obeys(self) -> bool:
        """Whether this rank has stopped as it was asked, or stands at a boundary to do so."""
        one = self.turns.round
        if one is None or one.request.command not in (STOP, CHECKPOINT_AND_STOP):
            return self.stop_step > 0
        verdict = one.verdict
        agreed = verdict is not None and verdict.acts and self.completed >= verdict.boundary
        return agreed or one.phase is rounds.Phase.ARRIVED

    # --- inside -------------------------------------------------------------------------------

    @property
    def _rank(self) -> int:
        return self.turns.place()[0]

    def decline(self, request: Request, text: str) -> None:
        if self.saver is not None and request.command in (CHECKPOINT, CHECKPOINT_AND_STOP):
            self.saver.decline(self.completed, request.number, text)

    def _saved(self, outcome: Any) -> None:
        if outcome.request:
            self.outcomes[outcome.request] = outcome
            for old in list(self.outcomes)[:-MAX_OUTCOMES]:
                del self.outcomes[old]
            self.turns.wake()
