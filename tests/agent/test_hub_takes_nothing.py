"""A hub that is away, or is stopped and takes nothing more, costs the rank next to nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rankscope.agent.connection import Connection
from rankscope.agent.farewell import Letter
from rankscope.agent.hublink import address_in_environ
from rankscope.agent.identity import Identity
from rankscope.agent.observer import Observer
from rankscope.agent.talk import Sequence, Talk
from rankscope.protocol import codec
from rankscope.protocol import messages as m
from support.listener import Listener
from support.wire import wait_until


class Away(Letter):
    """A hub that is not there until it is."""

    there = False

    def takes(self) -> bool:
        return self.there

    def send(self, frame: bytes) -> bool:
        return self.there and super().send(frame)


def test_what_a_rank_is_is_worked_out_only_for_a_hub_that_takes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Versions, environment and code are read from files: once a hub, and not at every look."""
    observer = Observer()
    read: Callable[[], dict[str, str]] = observer.facts.read
    reads: list[float] = []
    now = 0.0

    def counted() -> dict[str, str]:
        reads.append(now)
        return read()

    monkeypatch.setattr(observer.facts, "read", counted)
    talk, way = Talk(observer, "test", 0, Sequence()), Away()
    talk.identity = Identity(1, 2, 1, 0)
    for absences in range(1, 4):
        way.there = False
        talk.digest.boundary = not talk.digest.boundary  # there is something new to say
        for _ in range(50):
            now += 0.1
            talk.turn(way, now)
        assert len(reads) == absences - 1
        way.there = True
        talk.turn(way, now)
        assert len(reads) == absences
        hellos = [one for frame in way.frames if isinstance(one := codec.decode(frame), m.Hello)]
        assert len(hellos) == absences
        assert hellos[-1].facts["torch"]


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    with Listener(tmp_path / "hub") as hub:
        for name, value in hub.environ.items():
            monkeypatch.setenv(name, value)
        yield hub


def test_a_connection_takes_what_it_would_send(listener: Listener) -> None:
    """Nothing before there is a hub, all while there is, and nothing once it is away."""
    address = address_in_environ()
    assert address is not None
    listener.stop()
    connection = Connection(address)
    frame = codec.encode(m.Ping(1.0))
    try:
        assert (connection.takes(), connection.send(frame)) == (False, False)
        listener.start()
        wait_until(connection.takes, "the hub is there")
        assert connection.send(frame)
        listener.stop()
        wait_until(lambda: not connection.takes(), "the hub is away")
        assert not connection.send(frame)
    finally:
        connection.close()
