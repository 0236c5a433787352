"""Ranks that agree on the boundary at which they follow a request, over torch's own stores.

First ranks whose every step is taken by the test, in whatever order and with whatever happening to
them in between: no thread, no clock. Then ranks in threads of their own.
"""

import itertools
import random
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from torch._C._distributed_c10d import HashStore, TCPStore

from rankscope.agent.control.request import CHECKPOINT, PAUSE, STOP, Request
from rankscope.agent.control.round import (
    ARRIVE_S,
    CANCELLED,
    GIVEN_UP,
    GO,
    HOLD_S,
    Gate,
    Phase,
    Round,
    Verdict,
    decision,
    pass_by,
)

_prefixes = itertools.count()


class Away(ConnectionError):
    """The store does not answer."""


class Busy:
    """The ranks' store as one rank uses it: others get on between any two of its questions."""

    def __init__(self, store: HashStore, between: Callable[[], None]) -> None:
        self._store, self._between = store, between

    def __getattr__(self, name: str) -> Any:
        self._between()
        return getattr(self._store, name)


class Sim:
    """One rank: a round, and a training thread that waits where its gate says so."""

    def __init__(
        self,
        store: Any,
        prefix: str,
        rank: int,
        ranks: int,
        command: str,
        rounds: type[Round] = Round,
    ) -> None:
        self.rank, self.completed, self.waiting = rank, 0, False
        self.acted: int | None = None
        self.busy = False
        """Within a step of its control thread."""
        self.left = False
        """The training thread has gone on without a word."""
        self.stood: int | None = None
        """The agreed boundary, once the training thread has waited there."""
        self.alive, self.stopped, self.cut_off = True, False, False
        self.waited_s = 0.0
        self._store = store
        self.round = rounds(Request(7, command, "ada"), prefix, rank, ranks, 0.0)

    def train(self, blocked_beyond: int) -> None:
        """Come to the next boundary, unless held, or waiting for others in a collective."""
        if not self.alive or self.stopped or self.acted is not None:
            return
        if not self.waiting:
            if self.completed >= blocked_beyond:
                return
            self.completed += 1
        self._gate()

    def _gate(self) -> None:
        gate = self.round.gate(self.completed)
        self.waiting = gate is Gate.WAIT
        if self.waiting and self.completed == self.round.boundary:
            self.stood = self.completed
        if gate is Gate.ACT:
            self.acted = self.completed

    def control(self, now_s: float) -> None:
        if not self.alive or self.stopped or self.busy or self.round.phase is Phase.OVER:
            return
        self.busy = True
        if self.cut_off:
            self.round.fail(Away(), now_s)
        else:
            self.round.step(self._store, now_s, lambda: self.completed)
        self.busy = False

    @property
    def settled(self) -> bool:
        """Nothing more will come of the round here."""
        verdict = self.round.verdict
        if not self.alive or self.acted is not None:
            return True
        if verdict is None or self.waiting:
            return False
        return not verdict.acts or self.completed > verdict.boundary

    def time_goes_on(self, by_s: float) -> None:
        """Of its own: none while it is stopped."""
        if self.waiting and self.alive and not self.stopped:
            self.waited_s += by_s
            if self.waited_s > self.round.patience_s():
                self.round.leave()
                self.left = True
                self._gate()
        elif not self.waiting:
            self.waited_s = 0.0


EVENTS = {
    "control": 40,
    "train": 20,
    "time": 2,
    "long": 0.3,
    "kill": 0.1,
    "stop": 1,
    "cont": 4,
    "cut": 0.3,
    "mend": 4,
    "cancel": 0.1,
}
"""What happens to a rank next, and how often."""


MEANWHILE = 0.2
"""How often another rank gets on between two questions of one to the store."""


def play(
    seed: int,
    command: str,
    together: bool,
    disturbed: bool = True,
    rounds: type[Round] = Round,
) -> list[Sim]:
    """Three ranks that train in step (``together``: one is at most one boundary ahead)."""
    chance = random.Random(seed)
    store, prefix, now_s = HashStore(), f"t{next(_prefixes)}", 0.0
    ranks: list[Sim] = []

    def between() -> None:
        if disturbed and chance.random() < MEANWHILE:
            other = chance.choice(ranks)
            if chance.random() < 0.5:
                train(other)
            else:
                other.control(now_s)

    shared = Busy(store, between)
    ranks += [Sim(shared, prefix, rank, 3, command, rounds) for rank in range(3)]
    lazy = [chance.choice((0.1, 1.0, 1.0)) for _ in ranks]  # some are late at everything

    def train(rank: Sim) -> None:
        slowest = min(one.completed for one in ranks)
        rank.train(slowest + 1 if together else 1 << 30)

    def tick(by_s: float) -> None:
        nonlocal now_s
        now_s += by_s
        for one in ranks:
            one.time_goes_on(by_s)

    often = EVENTS | {"cancel": chance.choice((0.1, 0.1, 3))}
    happens = chance.choices(list(often), list(often.values()), k=250 if disturbed else 0)
    for what in happens:
        number = chance.choices(range(3), lazy)[0]
        rank = ranks[number]
        if what == "train":
            train(rank)
        elif what == "control":
            rank.control(now_s)
        elif what in ("time", "long"):
            tick(0.3 if what == "time" else ARRIVE_S + 1.0)
        elif what == "kill":
            rank.alive = False
        elif what in ("stop", "cont"):
            rank.stopped = what == "stop"
        elif what in ("cut", "mend"):
            rank.cut_off = what == "cut"
        elif rank.alive:
            rank.round.cancel("ada")
    # Whoever lives goes on, and everybody's store answers again.
    for rank in ranks:
        rank.stopped = rank.cut_off = False
    for _ in range(4000):
        rank = chance.choice(ranks)
        rank.control(now_s)
        train(chance.choice(ranks))
        tick(0.3 if disturbed else 0.02)
        if all(rank.settled for rank in ranks):
            return ranks
    if not all(rank.alive for rank in ranks) and not any(
        rank.waiting for rank in ranks if rank.alive
    ):
        return ranks  # training waits in a collective for one that is dead, as it would anyway
    raise AssertionError(f"no end: {[vars(rank) for rank in ranks]}")


def wrong(ranks: list[Sim], command: str) -> str:
    """What must never be, whatever happens to the ranks; empty when it is not."""
    acted = {rank.acted for rank in ranks} - {None}
    if len(acted) > 1:
        return f"acted at boundaries {acted}"
    verdicts = [(rank, rank.round.verdict) for rank in ranks if rank.alive]
    if any(rank.waiting for rank, _ in verdicts):
        return "a rank is held for ever"
    if command != CHECKPOINT and acted and {rank.stood for rank in ranks} != acted:
        return "acted although a rank had not come to stand there"
    given_up = {v.text for _, v in verdicts if v is not None and not v.acts and not v.alone}
    if len(given_up) > 1:
        return f"given up for different reasons: {given_up}"
    if given_up and acted:
        return "given up, and another rank acts"
    agreed = {v.boundary for _, v in verdicts if v is not None and v.acts}
    if given_up and agreed:
        return "given up, and another rank is about to act"
    for rank, v in verdicts:
        promised = v is not None and v.acts and rank.completed > v.boundary
        if promised and rank.acted is None and not rank.left:
            return f"rank {rank.rank} has passed a boundary that it had told"
    alone = any(v is not None and v.alone for _, v in verdicts)
    if command != CHECKPOINT and acted and not alone:
        # The one case that is left is a rank that cannot reach the store any more.
        late = [r.rank for r, _ in verdicts if r.acted is None]
        return f"ranks {late} did not act, and know nothing of it" if late else ""
    return ""


class Broken(Round):
    """A round with something wrong, which the games here must find out."""


class GoesWithOneMissing(Broken):
    def _meet(self, store: Any, now_s: float) -> float:
        if store.add(self._key("here"), 0) >= self._world_size - 1:
            return self._conclude(store, GO)
        return super()._meet(store, now_s)


class GivesTheDecisionUpAlone(Broken):
    def _decide(self, store: Any, proposal: str) -> float:
        if proposal.startswith((GIVEN_UP, CANCELLED)):
            self._over(Verdict(False, 0, proposal, cancelled=proposal.startswith(CANCELLED)))
            return 0.0
        return super()._decide(store, proposal)


class GivesTheOutcomeUpAlone(Broken):
    def _conclude(self, store: Any, proposal: str) -> float:
        if proposal not in ("", GO):
            self._over(Verdict(False, 0, proposal, cancelled=proposal.startswith(CANCELLED)))
            return 0.0
        return super()._conclude(store, proposal)


class IsThereBeforeItCame(Broken):
    def _arrive(self, store: Any, now_s: float, completed: Any) -> float:
        self._standing = True
        return super()._arrive(store, now_s, completed)


class DecidesWhatItWouldLike(Broken):
    """Not what stands in the store."""

    def _decide(self, store: Any, proposal: str) -> float:
        pause_s = super()._decide(store, proposal)
        if self.boundary and proposal.isdigit():
            self.boundary = int(store.get(self._key(f"next/{self._rank}")))
            if self.verdict is not None:
                self.verdict = self.verdict._replace(boundary=self.boundary)
        return pause_s


class PassesWithoutTheDecision(Broken):
    """It has told the others which boundary it will not pass, and passes it."""

    def gate(self, completed: int) -> Gate:
        found = super().gate(completed)
        return Gate.PASS if found is Gate.WAIT and not self.boundary else found


class ForgetsThatItLeft(Broken):
    def leave(self) -> None:
        super().leave()
        self._left = False
        self._holding = False
        self._standing = True


GAMES = 400
BROKEN: list[type[Broken]] = Broken.__subclasses__()


def test_no_rank_stops_or_pauses_unless_all_do_whatever_happens_in_between() -> None:
    """Kills, stops, lost stores, cancelling: those that live have all acted at one boundary, at
    which each had stood, or none has, all for the same reason; and none is held for ever."""
    acted, given_up = 0, 0
    for seed in range(GAMES):
        command = (STOP, PAUSE)[seed % 2]
        ranks = play(seed, command, together=seed % 4 < 2)
        assert wrong(ranks, command) == "", seed
        acted += all(rank.acted is not None for rank in ranks)
        given_up += all(rank.acted is None for rank in ranks)
    # The ways that things can go have been gone.
    assert acted > GAMES // 8
    assert given_up > GAMES // 8


def test_a_checkpoint_is_of_one_boundary_whatever_happens_in_between() -> None:
    """Ranks may miss it, and none saves at another boundary."""
    saved = 0
    for seed in range(150):
        ranks = play(seed, CHECKPOINT, together=seed % 2 == 0)
        assert wrong(ranks, CHECKPOINT) == "", seed
        saved += any(rank.acted is not None for rank in ranks)
    assert saved > 50


@pytest.mark.parametrize("rounds", BROKEN)
def test_these_games_find_out_what_is_wrong_with_a_round(rounds: type[Round]) -> None:
    """A test that lets a broken round pass shows nothing for a whole one."""
    found = []
    for seed in range(GAMES):
        command = (STOP, PAUSE, CHECKPOINT)[seed % 3]
        try:
            found.append(wrong(play(seed, command, seed % 4 < 2, rounds=rounds), command))
        except AssertionError:  # it has no end
            found.append("no end")
        if found[-1]:
            break
    assert found[-1], f"{GAMES} games"


def test_undisturbed_ranks_all_act() -> None:
    """Whatever the command."""
    for command in (CHECKPOINT, STOP, PAUSE):
        ranks = play(0, command, together=True, disturbed=False)
        assert len({rank.acted for rank in ranks}) == 1
        assert ranks[0].acted is not None


def test_a_rank_that_stands_at_the_boundary_waits_for_the_others_and_no_longer_than_promised() -> (
    None
):
    """One of two never comes: the other goes on, in words, and neither stops."""
    store = HashStore()
    both = [Sim(store, "alone", rank, 2, STOP) for rank in range(2)]
    now_s = 0.0
    for _ in range(12):
        for rank in both:
            rank.control(now_s)
        both[0].train(9)
        now_s += 0.1
    assert both[0].waiting
    assert both[0].round.phase is Phase.ARRIVED
    assert both[1].completed == 0
    now_s += ARRIVE_S
    for rank in both:
        rank.control(now_s)
    both[0].train(9)
    assert not both[0].waiting
    assert "rank 1 did not come to the boundary" in both[0].round.text
    assert [rank.acted for rank in both] == [None, None]


def test_a_process_that_was_stopped_has_not_waited_meanwhile() -> None:
    """It finds the outcome when it goes on, and acts like the others."""
    store = HashStore()
    both = [Sim(store, "stopped", rank, 2, STOP) for rank in range(2)]
    for _ in range(12):
        for rank in both:
            rank.control(0.1)
            rank.train(9)
        if all(rank.round.phase is Phase.ARRIVED for rank in both):
            break
    both[1].stopped = True
    for _ in range(3):
        both[0].control(0.2)
        both[0].train(9)
    assert both[0].acted is not None
    both[1].stopped = False
    both[1].control(500.0)  # the clock went on for everybody
    both[1].train(9)
    assert both[1].acted == both[0].acted


def test_counts_that_differ_too_much_void_the_request() -> None:
    """Whose they are is said."""
    assert decision([5, 5, 6]) == "6"
    text = decision([101, 201])
    assert "rank 0 has ended 100 steps and rank 1 200" in text
    assert "end_step equally often" in text


def test_a_store_that_is_gone_costs_the_request_alone() -> None:
    """It is tried for a while; nothing is raised, and no training thread is held."""
    alone = Round(Request(1, CHECKPOINT, "ada"), "gone", 0, 2, 0.0)
    assert not alone.fail(Away("gone"), 1.0)
    assert alone.gate(1) is Gate.PASS
    assert alone.fail(Away("gone"), 100.0)
    assert alone.gate(2) is Gate.OVER
    assert alone.text == "given up: torch's store: Away"


LEAD = 4
"""So many boundaries may one rank of those below be before another. A thread that gets no core, or
has not even begun, would else be left behind by more than ranks that train together can be."""


class Rank(threading.Thread):
    """Passes boundaries until it has acted, at a pace of its own, as training would."""

    def __init__(self, rank: int, ranks: int, store: Any, command: str, late_s: float) -> None:
        super().__init__(daemon=True)
        self.completed, self.acted = 0, -1
        self.over = False
        self.others: list[Rank] = []
        self.round = Round(
            Request(5, command, "ada", expires_s=100.0), "threads", rank, ranks, time.monotonic()
        )
        self._store, self._late_s = store, late_s
        self._pace = random.Random(rank)
        self._control = threading.Thread(target=self._agree, daemon=True)

    def _agree(self) -> None:
        time.sleep(self._late_s)  # it hears of the request later than others
        while (
            pause_s := self.round.step(self._store, time.monotonic(), lambda: self.completed)
        ) is not None:
            time.sleep(pause_s)

    def run(self) -> None:
        self._control.start()
        over = threading.Event()
        while not over.wait(self._pace.uniform(0.0, 0.004)):
            behind = min((o.completed for o in self.others if not o.over), default=self.completed)
            if self.completed - behind >= LEAD:
                continue
            self.completed += 1
            gate = pass_by(self.round, self.completed)
            if gate is not Gate.PASS:
                self.acted = self.completed if gate is Gate.ACT else -2
                break
        self.over = True
        self._control.join(60)


@pytest.mark.parametrize("command", [CHECKPOINT, STOP])
@pytest.mark.parametrize("seed", range(2))
def test_threads_over_a_store_on_the_network_act_at_the_same_boundary(
    command: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far apart they hear of the request."""
    # On a machine that is busy with other things two seconds are short.
    monkeypatch.setattr("rankscope.agent.control.round.HOLD_S", 30.0)
    spread = random.Random(seed)
    server = TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=30))
    stores = [TCPStore("127.0.0.1", server.port, timeout=timedelta(seconds=30)) for _ in range(4)]
    ranks = [
        Rank(number, 4, store, command, spread.uniform(0, 0.05))
        for number, store in enumerate(stores)
    ]
    for rank in ranks:
        rank.others = ranks
        rank.start()
    for rank in ranks:
        rank.join(100)
        assert not rank.is_alive()
    assert len({rank.acted for rank in ranks}) == 1
    assert ranks[0].acted > 0, [rank.round.text for rank in ranks]


def test_a_hold_for_the_decision_is_short() -> None:
    """What training waits for at most while the ranks agree."""
    assert HOLD_S <= 2.0
