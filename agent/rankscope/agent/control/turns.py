"""The requests of a rank, one after the other, in a thread of their own over torch's store.

The store says which request each turn is of: whoever wants one claims the next turn, and all take
part in whatever is claimed. So all ranks go through the same requests in the same order, wherever
each has heard of them: from the hub, or by a signal.
"""

import collections
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from rankscope.agent import switch
from rankscope.agent.control.hold import Hold, end_for_all
from rankscope.agent.control.request import CHECKPOINT, PAUSE, WHILE_PAUSED, Request, parse
from rankscope.agent.control.round import ASKED_PER_S, CANCELLED, GIVEN_UP, Round, Verdict

log = logging.getLogger("rankscope")

MAX_ENDED = 64
BELL_S = 0.5
"""Where ranks may be asked by signals, each looks so often whether another one was."""

RETRY_S = 0.5
"""After the store did not answer."""

PACES = 120


class Ended(NamedTuple):
    """What came of a request on this rank."""

    request: Request
    phase: str
    """``done``, ``given-up`` or ``cancelled``."""
    boundary: int
    text: str
    at_s: float


class Turns:
    """``place`` gives rank and world size, ``store`` a connection to the ranks' store for this
    alone; below ``prefix`` its keys are ours. ``completed`` counts this rank's boundaries, and
    nothing is begun while it is ``start_step``. ``decline`` tells the others that this rank takes
    no part in a save that they may have agreed on.
    """

    def __init__(
        self,
        prefix: str,
        place: Callable[[], tuple[int, int]],
        store: Callable[[], Any],
        completed: Callable[[], int],
        start_step: int,
        decline: Callable[[Request, str], None],
    ) -> None:
        self.round: Round | None = None
        """Of the request in work."""
        self.hold: Hold | None = None
        """While this rank stands at the boundary of its request."""
        self.wants: list[Request] = []
        """Heard of, and not begun; number 0 for one that gets that of its turn."""
        self.known: set[int] = set()
        """All requests that were heard of."""
        self.cancelled: dict[int, str] = {}
        """Requests that are not to be followed, and who said so."""
        self.ended: collections.deque[Ended] = collections.deque(maxlen=MAX_ENDED)
        """What came of requests, to be told; the oldest first."""
        self.listening = False
        """Whether a signal on another rank may bring a request."""
        self.lock = threading.Lock()
        """Over ``wants``, ``known`` and ``cancelled``."""
        self._prefix, self._ask_place, self._make_store = prefix, place, store
        self._completed, self._start_step, self._decline = completed, start_step, decline
        self._known_place: tuple[int, int] | None = None
        self._store: Any = None
        self._turn = 1
        self._paces: collections.deque[tuple[float, int]] = collections.deque(maxlen=PACES)
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closing = False

    # --- from any thread ----------------------------------------------------------------------

    def place(self) -> tuple[int, int]:
        """Rank and world size, as they were once there was a boundary."""
        if self._known_place is not None:
            return self._known_place
        found = self._ask_place()
        if self._completed() != self._start_step:
            self._known_place = found
        return found

    def prefix(self) -> str:
        """Of the keys of the turn in work."""
        return f"{self._prefix}/turn/{self._turn}"

    def step_s(self) -> float:
        """How long a step takes, as far as that was looked at; 0 when not known."""
        paces = list(self._paces)
        if len(paces) < 2 or paces[-1][1] == paces[0][1]:
            return 0.0
        return (paces[-1][0] - paces[0][0]) / (paces[-1][1] - paces[0][1])

    def wake(self) -> None:
        """There is something to do; the thread begins with the first such call."""
        if self._thread is None and not self._closing:
            self._thread = threading.Thread(target=self._run, name="rankscope-control", daemon=True)
            self._thread.start()
        self._wake.set()

    def finish(self, one: Round, phase: str, text: str) -> None:
        """The turn of ``one`` is over on this rank."""
        self.say(one.request, phase, one.boundary, text)
        self._turn += 1
        self.round = None
        self._wake.set()

    def say(self, request: Request, phase: str, boundary: int, text: str) -> None:
        self.ended.append(Ended(request, phase, boundary, text, time.monotonic()))

    def called_off(self, one: Round) -> bool:
        """Whether it is a save that the ranks have agreed on, that is cancelled, and that this
        rank has not come to: it will not make it, and without its part there is no checkpoint.

        The training thread says that it acts before it looks at what is cancelled, and who cancels
        looks afterwards: so no rank saves what it has called off.
        """
        if one.request.number not in self.cancelled or one.request.command != CHECKPOINT:
            return False
        return one.verdict is not None and one.verdict.acts and not one.acted

    def call_off(self, one: Round) -> None:
        """Say so at once: the training thread may be stuck, and come to the boundary late."""
        if self.called_off(one):
            by = self.cancelled[one.request.number]
            self.say(one.request, "cancelled", one.boundary, f"cancelled by {by}")

    def close(self, why: str) -> None:
        """This rank takes part no more; does not wait."""
        self._closing = True
        for part in (self.round, self.hold):
            if part is not None:
                part.end(why)
        self._wake.set()

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while not (self._closing and self._idle):
            pause_s = self._step(time.monotonic())
            self._wake.wait(pause_s)
            self._wake.clear()
        self._store = None

    @property
    def _idle(self) -> bool:
        """Whether there is nothing left that the other ranks would have to hear of."""
        one = self.round
        return self.hold is None and (one is None or one.verdict is not None)

    def _step(self, now_s: float) -> float | None:
        """Do what is next; how long to rest after it, None for until woken."""
        if self.listening:
            self._paces.append((now_s, self._completed()))
        if self._completed() == self._start_step:
            return BELL_S if self.listening else None
        try:
            if self._store is None:
                self._store = self._make_store()
            return self._work(self._store, now_s)
        except Exception as error:  # a request that fails must not fail the run
            log.debug("rankscope: control: %s", error, exc_info=True)
            self._store = None
            self._failed(error, now_s)
            return RETRY_S

    def _work(self, store: Any, now_s: float) -> float | None:
        one, hold = self.round, self.hold
        if hold is not None:
            if one is not None and one.request.command == PAUSE:
                self._hand_over(hold)
            pause_s = hold.step(store, now_s)
            self._forget(hold.taken)
            if hold.word:
                self.hold = None
            return 0.0 if pause_s is None else pause_s
        if one is None:
            return self._next(store, now_s)
        if one.verdict is None:
            pause_s = one.step(store, now_s, self._completed)
            verdict: Verdict | None = one.verdict
            if verdict is None:
                return pause_s
            self._settled(one, verdict)
            return 0.0
        return BELL_S if self.listening else None  # the training thread acts on it

    def _next(self, store: Any, now_s: float) -> float | None:
        """Claim the next turn for what is wanted, or take part in the one that is claimed."""
        with self.lock:
            want = self.wants[0] if self.wants else None
        key = f"{self.prefix()}/claim"
        if want is not None:
            numbered = want if want.number else msgspec.structs.replace(want, number=self._turn)
            found = parse(store.compare_set(key, "", numbered.text()))
        elif self.listening and store.check([key]):
            found = parse(store.get(key))
        else:
            return max(BELL_S, self.place()[1] / ASKED_PER_S) if self.listening else None
        one = Round(found, self.prefix(), *self.place(), now_s)
        with self.lock:
            self.known.add(found.number)
            by_signal = found.signal > 0  # one signal to all ranks is one request
            self.wants = [
                want
                for want in self.wants
                if want.number != found.number and not (by_signal and want.signal)
            ]
            if found.number in self.cancelled:
                one.cancel(self.cancelled[found.number])
            if any(want.signal for want in self.wants):
                self.make_way(one)
            self.round = one
        return 0.0

    def _hand_over(self, hold: Hold) -> None:
        """What is asked for while the ranks stand is done there, and takes no turn."""
        with self.lock:
            wants = (w for w in self.wants if w.number and w.command in WHILE_PAUSED)
            hold.want = next(wants, None)

    def _forget(self, taken: list[Request]) -> None:
        numbers = {request.number for request in taken}
        with self.lock:
            self.known |= numbers
            self.wants = [want for want in self.wants if want.number not in numbers]

    def make_way(self, one: Round | None) -> None:
        """What an operator has asked for and would hold up a signal's request goes."""
        if (
            one is not None
            and not one.request.signal
            and one.request.command in (PAUSE, CHECKPOINT)
        ):
            one.cancel("a signal")
            if self.hold is not None:
                self.hold.end("a signal asks to save and stop")

    def _settled(self, one: Round, verdict: Verdict) -> None:
        """There is a verdict. One that nobody acts on is over with that."""
        if verdict.acts:
            self.call_off(one)  # when it was cancelled too late for the ranks' decision
            return
        if verdict.alone and one.request.command == CHECKPOINT:
            self._decline(one.request, f"rank {self.place()[0]}: {verdict.text}")
        if verdict.alone and one.request.command == PAUSE and self._store is not None:
            with suppress(Exception):  # those that hold go on then, and soon in any case
                end_for_all(self._store, self.prefix(), verdict.text)
        phase = "cancelled" if verdict.cancelled else "given-up"
        text = verdict.text.removeprefix(GIVEN_UP).replace(CANCELLED, "cancelled ", 1)
        self.finish(one, phase, text)

    def _failed(self, error: Exception, now_s: float) -> None:
        one, hold = self.round, self.hold
        if hold is not None:
            if hold.fail(error, now_s):
                self.hold = None
        elif one is not None:
            if one.verdict is None and one.fail(error, now_s) and one.verdict is not None:
                self._settled(one, one.verdict)
        elif self.wants:
            with self.lock:
                want = self.wants.pop(0)
            self.say(want, "given-up", 0, f"torch's store: {switch.one_line(error)}")
