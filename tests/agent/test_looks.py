"""When the sending thread looks: on its own account, when it is woken, and when the hub speaks."""

import mmap
import select
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from rankscope.agent import attach, bell, looks, moments
from rankscope.agent.connection import Connection
from rankscope.agent.hublink import HubAddress
from rankscope.protocol import keys
from rankscope.protocol import messages as m
from support.listener import Listener
from support.sentinels import no_sentinel
from support.wire import wait_until


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    with (
        Listener(tmp_path / "hub") as listener,
        no_sentinel(listener.run) as temporary,
    ):
        for name, value in listener.environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("tempfile.tempdir", str(temporary))
        yield listener


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    loss: torch.Tensor = model(torch.ones(1, 4)).sum()
    torch.autograd.backward(loss)
    optimizer.step()


def rung(one: bell.Bell) -> bool:
    return bool(select.select([one.descriptor], [], [], 0)[0])


def test_a_rank_that_stands_is_looked_at_more_often() -> None:
    """Whether it stands is soon to be known; that it goes on, the next look tells as well."""
    assert looks.every_s(2, going=False) < looks.every_s(2, going=True)


@pytest.mark.parametrize("going", [True, False])
def test_a_rank_of_a_large_world_speaks_twice_a_second_at_least(going: bool) -> None:
    """What stretches its looks ends where its silence would be noticed."""
    assert looks.every_s(1 << 20, going=going) == 0.5


@dataclass
class Looker:
    """Sleeps and looks as the sending thread does, at a thread that notes nothing after a time."""

    stops_s: float
    step_s: float = 0.1
    phase_s: float = 0.04
    looked_s: list[float] = field(default_factory=list)
    glanced_s: list[float] = field(default_factory=list)

    def noted_s(self, now: float) -> float:
        return self.phase_s * (min(now, self.stops_s) // self.phase_s)

    def live(self, until_s: float, now: float = 0.0) -> None:
        while now < until_s:
            going = not looks.stands(now, self.noted_s(now), self.step_s)
            every_s = looks.every_s(2, going=going)
            now += looks.wait_s(now, every_s, self.step_s)
            going = not looks.stands(now, self.noted_s(now), self.step_s)
            looked_s = self.looked_s[-1] if self.looked_s else -1.0
            passes = going and not looks.is_due(now, every_s, looked_s)
            (self.glanced_s if passes else self.looked_s).append(now)


def test_training_that_goes_on_is_looked_at_twice_a_second() -> None:
    """Each look costs it a millisecond: what is between two is a glance."""
    looker = Looker(stops_s=1e9)
    looker.live(45.0)
    gaps_s = [b - a for a, b in pairwise(looker.looked_s)]
    assert max(gaps_s) == pytest.approx(looks.GOING_S)
    assert len(looker.looked_s) == pytest.approx(100, abs=2)
    assert len(looker.glanced_s) <= len(looker.looked_s) + 2


@pytest.mark.parametrize("stops_s", [10 + n / 37 for n in range(12)])
def test_a_thread_that_stands_is_looked_at_within_a_quarter_of_a_second(stops_s: float) -> None:
    """However far the next look is off: a glance finds that nothing was noted since."""
    looker = Looker(stops_s)
    looker.live(12.0)
    stood_s = looker.noted_s(12.0) + looks.STANDING_S
    first_s = next(at_s for at_s in looker.looked_s if at_s >= stood_s - 1e-9)
    assert first_s - stood_s <= looks.GLANCE_S + 1e-9
    later_s = [at_s for at_s in looker.looked_s if at_s >= first_s]
    assert max(b - a for a, b in pairwise(later_s)) < looks.STANDING_S * 1.3


def test_a_long_phase_of_a_long_step_is_no_standing() -> None:
    """Where phases last for seconds as a rule, none of them calls for more looks."""
    looker = Looker(stops_s=1e9, step_s=2.0, phase_s=0.9)
    looker.live(45.0)
    assert len(looker.looked_s) == pytest.approx(100, abs=2)
    assert not looker.glanced_s


@pytest.mark.parametrize("off_s", [-0.002, 0.0, 0.004, 0.02])
def test_ranks_of_a_node_look_and_glance_at_the_same_moments(off_s: float) -> None:
    """One that wakes a little before its moment, or after it, does not fall out of step."""
    for moment in range(400):
        now = moment * looks.GLANCE_S + off_s
        assert looks.is_due(now, looks.GOING_S, now - 0.23) == (moment % 2 == 0)


@pytest.mark.parametrize("late_s", [0.0, 0.03, 0.1, 0.149])
def test_ranks_of_a_node_look_at_the_same_moments(late_s: float) -> None:
    """However long a look took, or whatever woke the thread between two, the next is as of all."""
    now = 1234.0 + late_s
    assert now + moments.until_next_s(0.2, now) == pytest.approx(1234.2)


def test_a_look_just_before_its_moment_counts_as_the_one_of_that_moment() -> None:
    """Two looks in a row would show nothing new."""
    assert moments.until_next_s(0.2, 1234.19) == pytest.approx(0.21)


def test_what_the_hub_says_is_heard_before_the_next_look(
    hub: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of an operator does not wait for the next look."""
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    agent = attach(model, optimizer)
    session = agent._session
    assert session is not None
    try:
        train(model, optimizer)
        wait_until(lambda: hub.of_kind(m.Beat), "it is heard")
        monkeypatch.setattr(looks, "wait_s", lambda *_args: 3600.0)
        before = len(hub.of_kind(m.Hello))
        hub.reply(m.WhoAreYou(0))
        train(model, optimizer)
        session.sender.wake()  # to say so; whoever hears it replies, and the next look is far away
        wait_until(lambda: len(hub.of_kind(m.Hello)) > before, "it says once more who it is")
    finally:
        agent.close()


def test_memory_that_rises_is_looked_at_more_often(hub: Listener) -> None:
    """Whether it grows is told by a number of readings; once it stays as it is, that is over."""
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    agent = attach(model, optimizer)
    session = agent._session
    assert session is not None
    talk = session.sender.talk
    kept: list[mmap.mmap] = []
    try:
        train(model, optimizer)
        wait_until(lambda: hub.of_kind(m.Beat), "it is heard")
        wait_until(lambda: not talk.memory_rises(time.monotonic()), "it stays as it is")

        def grown() -> bool:
            """Pages of its own: what an allocator hands out may be what it had before."""
            pages = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            pages.write(b"\1" * len(pages))
            kept.append(pages)
            return talk.memory_rises(time.monotonic())

        wait_until(grown, "it is seen to rise", every_s=0.5)
        assert not talk.memory_rises(time.monotonic() + 60.0)
    finally:
        agent.close()
    assert looks.every_s(2, going=True, rises=True) == looks.GLANCE_S < looks.GOING_S


def test_memory_that_stays_as_it_is_is_not_told_with_each_look(hub: Listener) -> None:
    """Reading it is an eighth of a look. A hub that knows nothing is told with the first word."""
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    agent = attach(model, optimizer)
    session = agent._session
    assert session is not None
    talk = session.sender.talk

    def told() -> list[bool]:
        train(model, optimizer)
        return [beat.memory is not None for beat in hub.of_kind(m.Beat)]

    try:
        wait_until(lambda: told()[:1] == [True], "it is told with the first word")
        wait_until(lambda: not talk.memory_rises(time.monotonic()), "it stays as it is")
        before = len(told())
        wait_until(lambda: {*told()[before:]} == {True, False}, "it is told now and then")
        hellos = len(hub.of_kind(m.Hello))
        hub.reply(m.WhoAreYou(0))
        session.sender.wake()
        wait_until(lambda: len(hub.of_kind(m.Hello)) > hellos, "it says once more who it is")
        said = hub.of_kind(m.Hello)[-1].seq

        def since() -> list[bool]:
            told()
            return [beat.memory is not None for beat in hub.of_kind(m.Beat) if beat.seq > said]

        wait_until(since, "it goes on")
        assert since()[0]
    finally:
        agent.close()


def test_a_bell_ends_the_wait_for_a_hub_that_says_nothing() -> None:
    """Whoever has something urgent is not kept by a hub that is away."""
    hub, client = keys.new_pair(), keys.new_pair()
    key = keys.ClientKey("agent", "run-1", client.public, client.secret, hub.public)
    connection = Connection(HubAddress("run-1", "tcp://127.0.0.1:9", key))
    one = bell.taken()
    assert one is not None
    try:
        threading.Timer(0.05, one.ring).start()
        began_s = time.monotonic()
        assert connection.wait(600.0, one)
        assert time.monotonic() - began_s < 300.0
        assert not rung(one)
        assert not connection.wait(0.001, one)
    finally:
        connection.close()
        bell.given_back(one)


def test_a_wait_that_ended_by_itself_has_told_that_nothing_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The socket is asked again only after something was done with it."""
    hub, client = keys.new_pair(), keys.new_pair()
    key = keys.ClientKey("agent", "run-1", client.public, client.secret, hub.public)
    connection = Connection(HubAddress("run-1", "tcp://127.0.0.1:9", key))
    one = bell.taken()
    assert one is not None
    asked: list[bool] = []
    has_come = connection._has_come

    def ended_by_itself() -> bool:  # a connection that is tried again may end it, too
        assert not connection.wait(0.001, one)
        return connection._silent

    def is_asked() -> bool:
        asked.append(True)
        return has_come()

    monkeypatch.setattr(connection, "_has_come", is_asked)
    try:
        for touch in (connection.takes, lambda: connection.send(b""), connection.receive):
            wait_until(ended_by_itself, "a wait ends by itself")
            asked.clear()
            assert connection.receive() == []
            assert not asked
            wait_until(ended_by_itself, "another one does")
            touch()
            asked.clear()
            assert connection.receive() == []
            assert asked
    finally:
        connection.close()
        bell.given_back(one)


def test_a_bell_that_is_rung_late_is_rung_in_no_file_of_anybodys() -> None:
    """Its descriptor stays its own when its session has ended, and serves the next one."""
    one = bell.taken()
    assert one is not None
    bell.given_back(one)
    one.ring()
    again = bell.taken()
    assert again is one
    assert not rung(again)
    bell.given_back(again)


def test_a_bell_of_a_forks_parent_is_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parent and child would take each other's ringing."""
    one = bell.taken()
    assert one is not None
    monkeypatch.setattr(one, "pid", one.pid + 1)
    bell.given_back(one)
    other = bell.taken()
    assert other is not None
    assert other is not one
    bell.given_back(other)
