"""How the hub's loop sleeps and wakes, played with sockets and a clock of its own."""

from collections.abc import Iterator

import pytest

from rankscope.hub import server
from rankscope.hub.lifetimes import Lifetimes
from rankscope.hub.rhythm import LINGER_S
from rankscope.hub.sockets import Sockets
from rankscope.protocol import codec, keys
from rankscope.protocol import messages as m
from support.world import World


class Played:
    """Clock, sockets and the wish to stop of a hub; ``frames`` come at their times."""

    def __init__(self, world: World, frames: list[tuple[float, str, bytes]]) -> None:
        self.world = world
        self.began_s = self.time_s = world.now_s
        self.frames = frames
        self.taken_s: list[float] = []
        self.answered_s: list[float] = []
        self.slept_s: list[float] = []

    def now_s(self) -> float:
        return self.time_s

    @property
    def reason(self) -> str:
        return "" if self.frames else "all was played"

    def next_s(self) -> float:
        return self.began_s + self.frames[0][0] if self.frames else float("inf")

    def poll(self, timeout_s: float) -> set[object]:
        until_s = min(self.time_s + timeout_s, self.next_s())
        self.slept_s.append(max(0.0, until_s - self.time_s))
        self.time_s = max(self.time_s, until_s)
        return {self} if self.next_s() <= self.time_s else set()

    def receive(self) -> Iterator[tuple[bytes, str, bytes | None]]:
        while self.next_s() <= self.time_s:
            _, role, frame = self.frames.pop(0)
            self.taken_s.append(self.time_s - self.began_s)
            yield role.encode(), role, frame

    def send(self, _peer: bytes, _frame: bytes) -> None:
        self.answered_s.append(self.time_s - self.began_s)

    def sleep(self, seconds: float) -> None:
        self.time_s += seconds


def played(monkeypatch: pytest.MonkeyPatch, frames: list[tuple[float, str, bytes]]) -> Played:
    world = World(ranks=2)
    for _ in range(4):
        world.step(step_s=0.1)
    world.tick()
    world.core.outbox.clear()
    play = Played(world, frames)
    monkeypatch.setattr("rankscope.hub.server.time.sleep", play.sleep)
    server.serve_live(world.core, play, play, Lifetimes(), play)  # type: ignore[arg-type]
    return play


def ping(t_s: float) -> bytes:
    return codec.encode(m.Ping(t_s))


def test_one_waking_serves_all_ranks_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """They speak at the same moments, each some fractions of a millisecond after the other."""
    frames = [(0.1 + at_s, "agent", ping(at_s)) for at_s in (0.0, 0.0005, 0.002, 0.0039)]
    play = played(monkeypatch, [*frames, (0.5, "agent", ping(1.0))])
    assert len(set(play.taken_s)) == 2
    assert play.taken_s[0] == pytest.approx(0.1 + LINGER_S)


def test_a_client_is_answered_at_once_from_its_second_question_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits for the answer; before it was heard nobody knew of it."""
    asked_s = [0.1, 0.3, 0.5]
    play = played(monkeypatch, [(at_s, "viewer", ping(at_s)) for at_s in asked_s])
    assert play.answered_s == pytest.approx([0.1 + LINGER_S, 0.3, 0.5])


def test_a_wait_ends_at_its_time_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever woke within the last millisecond would go round and round until it is over."""
    pair = keys.new_pair()
    sockets = Sockets(pair, {})
    waits_ms: list[int] = []

    class Poller:
        def poll(self, timeout_ms: int) -> list[tuple[object, int]]:
            waits_ms.append(timeout_ms)
            return []

    try:
        monkeypatch.setattr(sockets, "_poller", Poller())
        for timeout_s in (0.0, 0.0004, 0.25, 0.2501, 1.0):
            sockets.poll(timeout_s)
    finally:
        sockets.close()
    assert waits_ms == [0, 1, 250, 251, 1000]
