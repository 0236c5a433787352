"""How the ranks agree on the boundary at which a request is acted on. One request on one rank.

No collective and nothing at all at ordinary boundaries: the ranks' threads talk through torch's
store, and only while there is a request. All of it is steps (:meth:`Round.step`, of the control
thread) and gates (:meth:`Round.gate`, of the training thread) that never wait by themselves.

1. Each rank says that it has heard of the request; until all have, nothing happens.
2. Each *holds*: its training thread will not pass another boundary without knowing the decision.
   Only then it tells the number of its next boundary. The largest number told is the decision.
   No rank can have passed it, because none passes a boundary that it has told.
3. A checkpoint is acted on at that boundary. What no rank may do alone (a stop, a pause) takes a
   second round: each rank stands at the boundary and says so; the outcome is *go* only when all
   stand there.

Decision and outcome are one key each, written once by ``compare_set``: whoever wants to give up
writes that, and who comes second obeys what is there. So ranks that can read the store are never in
different minds, whoever was stopped, killed or late in between. In doubt is only a rank that has
said that it stands at the boundary and can then not reach the store any more.
"""

import threading
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from rankscope.agent.control.request import TOGETHER, Request

HOLD_S = 2.0
"""The longest that a training thread waits for the decision, once for each request."""

ARRIVE_S = 30.0
"""The longest that it stands at the agreed boundary for the others, which in synchronous training
it would wait for in the next collective anyway."""

DOUBT_S = 10.0
"""A store that does not answer is tried for so long."""

FAST_S, SLOW_S = 0.005, 0.25
"""Between two questions to the store: when training may be held up meanwhile, and when not."""

ASKED_PER_S = 50_000
"""So many questions of all ranks together a store can answer; a large world asks seldomer."""

SLICE_S = 0.05
"""A training thread that waits looks up so often."""

MAX_SKEW = 16
"""Ranks whose counts of boundaries differ by more do not call ``end_step`` equally often."""

GO = "go"
GIVEN_UP, CANCELLED = "given up: ", "cancelled: "
SHOWN = 64


class Store(Protocol):
    """What is used of ``torch.distributed.Store``."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes: ...

    def add(self, key: str, amount: int) -> int: ...

    def check(self, keys: list[str]) -> bool: ...

    def multi_get(self, keys: list[str]) -> list[bytes]: ...

    def compare_set(self, key: str, expected: str, desired: str) -> bytes: ...


class Gate(Enum):
    """What the training thread does at a boundary."""

    PASS = 0
    WAIT = 1
    ACT = 2
    OVER = 3
    """Nothing will come of it on this rank."""


class Verdict(NamedTuple):
    """What came of a round on this rank."""

    acts: bool
    boundary: int
    """That was agreed on; 0 when none was."""
    text: str
    alone: bool = False
    """Other ranks may act: it was not them who gave up, or this rank does not know."""
    cancelled: bool = False


class Phase(Enum):
    """Of the control thread's side."""

    WAITING = "waiting"
    READY = "ready"
    AGREEING = "agreeing"
    AGREED = "agreed"
    ARRIVED = "arrived"
    OVER = "over"


class Round:
    """``now_s`` is any monotonic clock, ``completed`` how many boundaries this rank has passed."""

    def __init__(
        self, request: Request, prefix: str, rank: int, world_size: int, now_s: float
    ) -> None:
        self.request = request
        self.phase = Phase.WAITING
        self.since_s = now_s
        self.boundary = 0
        """The decision; 0 before."""
        self.verdict: Verdict | None = None
        self.acted = False
        """Whether the training thread has come to the boundary, and does what was agreed on."""
        self.news = threading.Event()
        """Set whenever the gate may have become another one."""
        self.text = "asked for"
        self._prefix, self._rank, self._world_size = prefix, rank, world_size
        self._deadline_s = now_s + request.expires_s
        self._together = request.command in TOGETHER
        self._lock = threading.Lock()
        self._holding = False
        self._told = False
        self._standing = False  # the training thread waits at the boundary
        self._left = False  # the training thread has waited in vain, and has gone on
        self._here = False  # others may count on this rank
        self._failing_s: float | None = None
        self._cancelled_by = ""
        self._ending = ""
        self._began = False

    # --- the training thread ------------------------------------------------------------------

    def gate(self, completed: int) -> Gate:
        """What to do at the boundary ``completed``. After ``WAIT`` it is asked again."""
        if not self._holding and self.verdict is None:
            return Gate.PASS
        with self._lock:
            verdict = self.verdict
            if verdict is not None:
                if not verdict.acts:
                    return Gate.OVER
                if completed == verdict.boundary:
                    return Gate.ACT
                return Gate.PASS if completed < verdict.boundary else Gate.OVER
            if self._left or (self.boundary and completed != self.boundary):
                return Gate.PASS
            self._standing = bool(self.boundary)
            return Gate.WAIT

    def patience_s(self) -> float:
        """How long the training thread may wait at this boundary."""
        return ARRIVE_S + DOUBT_S if self.boundary else HOLD_S

    def leave(self) -> None:
        """The training thread has waited for that long, and goes on."""
        with self._lock:
            if self.verdict is None:
                self._left = True
                self._standing = False

    # --- whoever wants it to end --------------------------------------------------------------

    def cancel(self, author: str) -> None:
        """Abandon it on all ranks, unless it is too late for that."""
        self._cancelled_by = author

    def end(self, why: str) -> None:
        """This rank takes no part any more: ``why`` in words."""
        self._ending = why

    def fail(self, error: Exception, now_s: float) -> bool:
        """The store has failed. Whether this rank gives the request up for it."""
        if self._failing_s is None:
            self._failing_s = now_s
        if now_s - self._failing_s < DOUBT_S:
            return False
        text = f"torch's store: {type(error).__name__}"
        self._over(Verdict(False, self.boundary, f"{GIVEN_UP}{text}", alone=True))
        return True

    # --- the control thread -------------------------------------------------------------------

    def step(self, store: Store, now_s: float, completed: Callable[[], int]) -> float | None:
        """Do what is next; returns in how many seconds to come again, None when it is over."""
        if self.phase is Phase.WAITING:
            pause_s = self._wait(store, now_s, "aware", "rank {} did not hear of it")
        elif self.phase is Phase.READY:
            pause_s = self._wait(store, now_s, "ready", "a rank that had heard of it fell silent")
        elif self.phase is Phase.AGREEING:
            pause_s = self._agree(store, now_s, completed)
        elif self.phase is Phase.AGREED:
            pause_s = self._arrive(store, now_s, completed)
        elif self.phase is Phase.ARRIVED:
            pause_s = self._meet(store, now_s)
        else:
            return None
        self._failing_s = None
        return None if self.verdict is not None else max(pause_s, self._world_size / ASKED_PER_S)

    def _wait(self, store: Store, now_s: float, what: str, in_vain: str) -> float:
        """Until all ranks have come to ``what``. Training is not held up."""
        if not self._began:
            self._began = True  # once, whatever the store answers
            if what == "aware":
                self.text = "waiting for all ranks to hear of it"
                store.set(self._key(f"aware/{self._rank}"), "1")
            store.add(self._key(what), 1)
        stopped = self._stopped()
        if stopped or store.check([self._key("decision")]):
            # Else somebody has given it up: agreeing takes all ranks.
            return self._decide(store, stopped)
        if store.add(self._key(what), 0) >= self._world_size:
            self._enter(Phase.READY if what == "aware" else Phase.AGREEING, now_s)
            self._began = False
            return 0.0
        if now_s > self._deadline_s:
            absent = self._absent(store, "aware") if "{}" in in_vain else ""
            return self._decide(store, GIVEN_UP + in_vain.format(absent))
        return SLOW_S if what == "aware" and now_s - self.since_s > 1.0 else FAST_S * 2

    def _agree(self, store: Store, now_s: float, completed: Callable[[], int]) -> float:
        """Hold, tell, and read the decision; whoever finds that all have told writes it."""
        if not self._told:
            self._told = True
            self._holding = True  # before the count is read: see above
            store.set(self._key(f"next/{self._rank}"), str(completed() + 1))
            store.add(self._key("told"), 1)
        if store.check([self._key("decision")]):
            return self._decide(store, "")
        stopped = self._stopped()
        if stopped:
            return self._decide(store, stopped)
        if store.add(self._key("told"), 0) >= self._world_size:
            everyone = range(self._world_size)
            told = store.multi_get([self._key(f"next/{rank}") for rank in everyone])
            return self._decide(store, decision([int(number) for number in told]))
        if now_s - self.since_s > HOLD_S:
            absent = self._absent(store, "next")
            return self._decide(store, f"{GIVEN_UP}rank {absent} did not answer in time")
        return FAST_S

    def _decide(self, store: Store, proposal: str) -> float:
        """Take what is decided; with ``proposal`` unless something else is."""
        key = self._key("decision")
        found = (store.compare_set(key, "", proposal) if proposal else store.get(key)).decode()
        if not found.isdigit():
            self._over(Verdict(False, 0, found, cancelled=found.startswith(CANCELLED)))
            return 0.0
        with self._lock:
            self.boundary = int(found)
        self._enter(Phase.AGREED, self.since_s)
        self.text = f"agreed: after step {found}"
        if not self._together:
            self._over(Verdict(True, self.boundary, self.text))
        self.news.set()
        return FAST_S

    def _arrive(self, store: Store, now_s: float, completed: Callable[[], int]) -> float:
        """Until the training thread stands at the boundary; then others may count on it."""
        with self._lock:
            gone = self._left or (completed() > self.boundary and not self._standing)
            said = self._here
            self._here = here = said or (self._standing and not gone and not self._stopped())
        if here:
            if not said:  # once, whatever the store answers: a rank must not be counted twice
                store.add(self._key("here"), 1)
                store.set(self._key(f"here/{self._rank}"), "1")
            self._enter(Phase.ARRIVED, now_s)
            self.text = f"at the boundary after step {self.boundary}, waiting for the other ranks"
            return 0.0
        if gone:
            return self._conclude(
                store, f"{GIVEN_UP}rank {self._rank} did not wait at the boundary"
            )
        stopped = self._stopped()
        if stopped or store.check([self._key("outcome")]):
            return self._conclude(store, stopped)
        return FAST_S if now_s - self.since_s < 1.0 else FAST_S * 4

    def _meet(self, store: Store, now_s: float) -> float:
        """Until all ranks stand there, or one has given up."""
        stopped = self._stopped()
        if store.check([self._key("outcome")]) or stopped:
            return self._conclude(store, stopped)
        if store.add(self._key("here"), 0) >= self._world_size:
            return self._conclude(store, GO)
        if now_s - self.since_s > ARRIVE_S:
            absent = self._absent(store, "here")
            return self._conclude(
                store,
                f"{GIVEN_UP}rank {absent} did not come to the boundary after step {self.boundary} "
                f"within {ARRIVE_S:.0f} s",
            )
        return FAST_S

    def _conclude(self, store: Store, proposal: str) -> float:
        """Take the outcome; with ``proposal`` unless there is one."""
        key = self._key("outcome")
        found = (store.compare_set(key, "", proposal) if proposal else store.get(key)).decode()
        go = found == GO
        with self._lock:
            missed = go and self._left
        if missed:
            text = f"{GIVEN_UP}rank {self._rank} went on, for torch's store did not answer"
            self._over(Verdict(False, self.boundary, text, alone=True))
        elif go:
            self._over(Verdict(True, self.boundary, self.text))
        else:
            self._over(Verdict(False, 0, found, cancelled=found.startswith(CANCELLED)))
        return 0.0

    def _stopped(self) -> str:
        """Why this rank wants it to end; empty when it does not."""
        if self._cancelled_by:
            return f"{CANCELLED}by {self._cancelled_by}"
        return f"{GIVEN_UP}{self._ending}" if self._ending else ""

    def _absent(self, store: Store, what: str) -> str:
        """The ranks that have not come to ``what``, of the first ones."""
        ranks = range(min(self._world_size, SHOWN))
        absent = [str(r) for r in ranks if not store.check([self._key(f"{what}/{r}")])]
        return ", ".join(absent) or "?"

    def _enter(self, phase: Phase, now_s: float) -> None:
        self.phase, self.since_s = phase, now_s

    def _over(self, verdict: Verdict) -> None:
        with self._lock:
            if self.verdict is None:
                self.verdict = verdict
                self.text = verdict.text
                self.phase = Phase.OVER
        self.news.set()

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}"


def decision(told: list[int]) -> str:
    """Of the next boundaries of all ranks: the largest, or why there is none."""
    least, most = min(told), max(told)
    if most - least > MAX_SKEW:
        return (
            f"{GIVEN_UP}rank {told.index(least)} has ended {least - 1} steps and rank "
            f"{told.index(most)} {most - 1}: they do not call end_step equally often"
        )
    return str(most)


def pass_by(one: Round, completed: int) -> Gate:
    """What comes of waiting at the boundary ``completed``: anything but ``WAIT``.

    Waited is in slices of this thread's own time: for a process that was stopped meanwhile, what
    happened in between counts first. Signals are handled as ever, and the interpreter is free.
    """
    while True:
        standing = one.boundary == completed
        slices = round(one.patience_s() / SLICE_S)
        while (gate := one.gate(completed)) is Gate.WAIT and slices > 0:
            one.news.clear()
            if one.gate(completed) is Gate.WAIT and not one.news.wait(SLICE_S):
                slices -= 1
            if one.boundary == completed and not standing:
                break  # decided meanwhile, and on this one: that is another wait
        else:
            if gate is not Gate.WAIT:
                return gate
            one.leave()
            return one.gate(completed)
