"""Beginning and ending: what fails of the agent's own, and what the user's own handlers raise."""

import atexit
import pkgutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rankscope.agent import Agent, attach, registry, switch
from rankscope.agent.sender import Sender
from rankscope.agent.session import Session
from rankscope.agent.talk import Sequence
from rankscope.protocol import messages as m
from support.listener import Listener
from support.sentinels import no_sentinel
from support.wire import wait_until


def small() -> tuple[torch.nn.Module, Any]:
    model = torch.nn.Linear(4, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def train(model: torch.nn.Module, optimizer: Any) -> None:
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    """A listening end; the node's folder is this test's own."""
    with (
        Listener(tmp_path / "hub") as listener,
        no_sentinel(listener.run) as temporary,
    ):
        for name, value in listener.environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("tempfile.tempdir", str(temporary))
        yield listener


def placed() -> tuple[Any, ...]:
    return (
        sys.excepthook,
        threading.excepthook,
        torch.autograd.backward,
        torch.nn.utils.clip_grad_norm_,
        torch.utils.data.dataloader._BaseDataLoaderIter.__next__,
        vars(torch.nn.Linear).get("__call__"),
    )


def left() -> tuple[Any, ...]:
    """What is still placed once no thread of the agent is there any more."""
    wait_until(
        lambda: all(thread.name != "rankscope" for thread in threading.enumerate()),
        "the end of the thread",
    )
    return placed()


def failing(error: BaseException) -> Any:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    return fail


@pytest.mark.parametrize("broken", ["start", "urgent"])
def test_what_could_not_begin_leaves_nothing_and_a_second_attach_begins(
    broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No thread to be had, or a fault right after: one line, no hooks, and next time it works."""
    before = placed()
    with monkeypatch.context() as patch:
        fail = failing(RuntimeError("can't start new thread"))
        if broken == "start":
            patch.setattr(Sender, "start", fail)
        else:
            patch.setattr("rankscope.agent.session.atexit.register", fail)
        model, optimizer = small()
        with attach(model, optimizer) as agent:
            train(model, optimizer)
            agent.end_step()
        agent.close()
    assert left() == before
    assert "training goes on unwatched" in caplog.text
    with attach(model, optimizer) as second:
        assert second is not agent
        train(model, optimizer)
        assert placed() != before
    assert left() == before


def test_ending_what_never_began_is_harmless() -> None:
    """A session whose thread never started can be closed, left and abandoned."""
    session = Session("name", 0, Sequence())
    session.leave(ValueError())
    session.close("finished")
    Session("name", 0, Sequence()).abandon()


class Mine(Exception):
    """What the user's signal handler raises."""


@pytest.fixture
def raising() -> Iterator[Any]:
    """Something to be called inside the agent, in which the user's handler raises Mine."""

    def handler(*_: Any) -> None:
        raise Mine

    old = signal.signal(signal.SIGUSR1, handler)
    yield lambda *args, **kwargs: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, old)


BEGINNINGS = [
    "rankscope.agent.registry.script_name",
    "rankscope.agent.sender.Sender.start",
    "rankscope.agent.observer.Observer.install",
    "rankscope.agent.observer.Observer.watch",
    "rankscope.agent.session.atexit.register",
]
ENDINGS = [
    "rankscope.agent.observer.Observer.read_late",
    "rankscope.agent.observer.Observer.raised",
    "rankscope.agent.probes.modules.Modules.uninstall",
    "rankscope.agent.sender.Sender.end",
    "rankscope.agent.session.atexit.unregister",
]


@pytest.mark.parametrize("place", BEGINNINGS)
def test_a_users_handler_may_raise_while_attaching(
    place: str, raising: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception reaches the user's code, nothing half-built stays, and a later try works."""
    before = placed()
    model, optimizer = small()
    with monkeypatch.context() as patch:
        patch.setattr(place, raising)
        with pytest.raises(Mine):
            attach(model, optimizer)
    agent = attach(model, optimizer)
    train(model, optimizer)
    agent.close()
    assert left() == before


@pytest.mark.parametrize("place", ENDINGS)
@pytest.mark.parametrize("how", ["close", "leave", "at_exit"])
def test_a_users_handler_may_raise_while_ending(
    place: str, how: str, raising: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception reaches the user's code, and the rest of the ending is done all the same."""
    before = placed()
    model, optimizer = small()
    agent = attach(model, optimizer)
    session = registry._session
    assert session is not None
    ways: dict[str, Any] = {
        "close": agent.close,
        "leave": lambda: Agent.__exit__(agent, ValueError, ValueError(), None),
        "at_exit": session.at_exit,
    }
    real: Any = None

    def both(*args: Any, **kwargs: Any) -> Any:
        real(*args, **kwargs)
        raising()

    if how == "at_exit":
        monkeypatch.setattr(sys, "last_value", ValueError("x"), raising=False)
    with monkeypatch.context() as patch:
        real = pkgutil.resolve_name(place)
        patch.setattr(place, both)
        if place.endswith("raised") and how == "close":
            ways[how]()
        else:
            with pytest.raises(Mine):
                ways[how]()
    assert session.closed
    assert left() == before
    atexit.unregister(session.at_exit)


def test_every_action_is_done_and_the_users_exception_is_the_one_raised() -> None:
    """Faults of our own are dropped, the first of the user's is kept."""
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        switch.contained(
            failing(ValueError()), failing(KeyboardInterrupt()), lambda: done.append(1)
        )
    assert done == [1]


def test_a_pause_is_said_and_ends_with_the_next_beat(hub: Listener) -> None:
    """Who goes on unobserved says so, says nothing then, and is heard again."""
    model, optimizer = small()
    agent = attach(model, optimizer)
    try:
        train(model, optimizer)
        wait_until(lambda: hub.of_kind(m.Beat), "it is heard")
        agent.pause_observing()
        (said,) = wait_until(lambda: hub.of_kind(m.Goodbye), "it says that it pauses")
        assert (said.reason, isinstance(hub.all()[-1], m.Goodbye)) == ("paused", True)
        train(model, optimizer)
        agent.resume_observing()
        train(model, optimizer)
        wait_until(lambda: isinstance(hub.all()[-1], m.Beat), "it is heard again")
    finally:
        agent.close()


def test_what_came_of_a_request_is_said_before_the_goodbye(hub: Listener) -> None:
    """Whoever hears that a rank has ended knows how far it came: the goodbye is the last word."""
    model, optimizer = small()
    agent = attach(model, optimizer)
    try:
        train(model, optimizer)
        agent.end_step()
        wait_until(lambda: hub.of_kind(m.Controlled), "the hub knows that it follows requests")
        hub.reply(m.Order("stop", 7, 60.0, "ada@laptop"))
        until_s = time.monotonic() + 60
        while agent.end_step():
            assert time.monotonic() < until_s
            train(model, optimizer)
    finally:
        agent.close()
    said = hub.heard_out().all()
    assert isinstance(said[-1], m.Goodbye)
    (done,) = (one for one in hub.of_kind(m.Controlled) if one.phase == "done")
    assert (done.request, done.stop_step) == (7, done.boundary)


@pytest.mark.parametrize(
    "broken",
    ["control.account.Account.due", "outbox.Outbox.next_check", "digest.Digest.overhead_s"],
)
def test_no_fault_in_what_is_said_before_it_keeps_the_goodbye(
    broken: str, hub: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that has ended in order is not one that died: not for a fault of the agent's own."""
    model, optimizer = small()
    agent = attach(model, optimizer)
    train(model, optimizer)
    agent.end_step()
    wait_until(lambda: hub.of_kind(m.Beat), "it is heard")
    monkeypatch.setattr(f"rankscope.agent.{broken}", failing(RuntimeError("broken")))
    agent.close()
    wait_until(lambda: hub.of_kind(m.Goodbye), "its goodbye")


def test_who_pauses_before_anybody_hears_rests_as_well(hub: Listener) -> None:
    """A script of which it is not yet known whether it trains alone has nobody to say it to."""
    model, optimizer = small()
    agent = attach(model, optimizer)
    try:
        agent.pause_observing()
        session = agent._session
        assert session is not None
        wait_until(lambda: session.sender.paused, "it rests")
        agent.resume_observing()
        train(model, optimizer)
        wait_until(lambda: hub.of_kind(m.Beat), "it is heard")
    finally:
        agent.close()


def test_after_the_end_nothing_is_placed_again() -> None:
    """Pausing and resuming a closed session does nothing."""
    before = placed()
    agent = attach(*small())
    agent.close()
    agent.pause_observing()
    agent.resume_observing()
    assert left() == before
