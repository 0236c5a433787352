"""What is asked of a hub right after its run ended: the answer waits for the verdict."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.protocol import messages as m
from rankscope.protocol.procs import is_alive
from rankscope.protocol.shapes import Status
from rankscope.tui import reach
from rankscope.tui.feed.client import HubClient
from rankscope.tui.launcher import session as sessions
from rankscope.tui.launcher.foreground import last_words
from rankscope.tui.launcher.session import Session
from rankscope.tui.launcher.supervisor import Supervisor
from rankscope.tui.runs import listed
from support.collectives import TOKENS, Job
from support.wire import Peer, wait_until
from support.world import RUN, World

pytestmark = pytest.mark.processes


class FarWorld(World):
    """A world whose hub is another process; its time is the real one."""

    def __init__(self, peer: Peer, ranks: int = 2) -> None:
        self.peer = peer
        super().__init__(ranks)

    @property
    def now_s(self) -> float:
        return time.monotonic()

    @now_s.setter
    def now_s(self, value: float) -> None:
        """Time goes on by itself."""

    def send(self, message: m.Message, peer: str = "") -> None:
        self.peer.send(message)

    def tick(self) -> None:
        """The hub ticks by itself."""


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path / "home"))
    command = [sys.executable, "-c", "raise SystemExit(1)"]
    opened = Session.open(command, name="", run_id=RUN)
    try:
        wait_until(opened.start(command).poll, "the end of the command")
        yield opened
    finally:
        opened.end()


def test_a_hub_that_hears_nothing_is_ended_and_the_end_is_known(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stops it does so again: no hub is left behind, and the exit code is not lost."""
    monkeypatch.setattr(sessions, "FINAL_WORD_S", 0.5)
    monkeypatch.setattr(Supervisor, "wake", lambda self: None)
    hub = session.directory.read_info().hub
    assert hub is not None
    os.kill(hub.pid, signal.SIGSTOP)
    assert session.finish(1) is None
    assert not is_alive(hub.pid, hub.start_time_s)
    (row,) = listed(session.directory.path.parent)
    assert (row.state, row.exit_code) == ("ended", 1)
    with reach.connect(session.directory) as client:
        status = client.ask("status").body
    assert isinstance(status, Status)
    assert (status.state, status.exit_code) == ("failed", 1)


def test_an_end_kept_back_for_a_moment_is_waited_for(session: Session) -> None:
    """A collective may have brought about an abort, so its finding is a moment late."""
    with Peer(session.endpoint, session.directory.read_key("agent")) as peer:
        peer.ping()  # what it says from now on is there before the launcher's word
        world = FarWorld(peer)
        job = Job(world).steps(6).enters(TOKENS, ranks=(0,))
        job.operations(0).operations(1)
        world.kill(1, signal=6)
        world.raises(0, "RuntimeError", from_peer=True, message="Connection closed by peer")
        world.ended(0, signal=15)
        status = session.finish(1)
    assert status is not None
    assert status.state == "failed"
    assert status.verdict is not None
    assert (status.verdict.kind, status.verdict.ranks) == ("rank-dead", [1])


def test_a_failure_of_nobodys_is_told_after_a_moment(session: Session) -> None:
    """No rank, no sentinel's word: there is nothing to wait for but the moment itself."""
    began_s = time.monotonic()
    status = session.finish(1)
    assert time.monotonic() - began_s >= sessions.VERDICT_S
    assert status is not None
    assert (status.state, status.verdict) == ("failed", None)


def test_a_good_end_is_told_at_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "VERDICT_S", 1e9)
    monkeypatch.setattr(sessions, "FINAL_WORD_S", 1e9)
    status = session.finish(0)
    assert status is not None
    assert (status.state, status.verdict) == ("finished", None)


@pytest.mark.parametrize("code", [0, 1])
def test_the_last_words_of_ranks_are_waited_for(
    session: Session, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The launcher's word is quicker than theirs: the last line names the step that was the last,
    and how they ended."""
    monkeypatch.setattr(sessions, "VERDICT_S", 60.0)
    monkeypatch.setattr(sessions, "FINAL_WORD_S", 60.0)
    with (
        Peer(session.endpoint, session.directory.read_key("agent")) as peer,
        HubClient(session.endpoint, session.directory.read_key("viewer")) as client,
    ):
        world = FarWorld(peer)
        Job(world).steps(6)
        peer.ping()

        def say_the_last() -> None:
            wait_until(lambda: _state(client) in ("finished", "failed"), "the launcher's word")
            time.sleep(0.5)  # whoever does not wait has asked by now
            world.step()
            world.goodbye(0).kill(1) if code else world.goodbye(0).goodbye(1)

        last = threading.Thread(target=say_the_last)
        last.start()
        status = session.finish(code)
        last.join()
    assert status is not None
    assert status.step == 7
    kind = None if status.verdict is None else status.verdict.kind
    assert kind == ("rank-dead" if code else None)


def test_a_dashboard_on_the_launcher_s_terminal_keeps_no_end_back(session: Session) -> None:
    """Everybody knows of the end as soon as the command has ended, not when the screen is left."""
    left = threading.Event()
    with (
        Peer(session.endpoint, session.directory.read_key("agent")) as peer,
        HubClient(session.endpoint, session.directory.read_key("viewer")) as client,
    ):
        peer.ping()
        world = FarWorld(peer)
        Job(world).steps(6)
        world.kill(1)
        world.kill(0, signal=15)
        peer.ping()
        thread = session.wait_in_thread(left)
        try:
            wait_until(lambda: _state(client) == "failed", "the hub's word of the end")
            wait_until(
                lambda: session.directory.read_info().exit_code == 1, "run.json's word of it"
            )
            assert session.directory.read_info().ended_s is not None
        finally:
            left.set()
            thread.join()
    status = session.finish(1)
    assert status is not None
    assert status.state == "failed"


def _state(client: HubClient) -> str:
    body = client.ask("status").body
    assert isinstance(body, Status)
    return body.state


def test_the_line_that_ends_a_run_claims_no_last_step_that_was_not_heard(session: Session) -> None:
    """It says of an end what ``rankscope status`` says of it: the run may have gone on longer."""
    world = World(ranks=2).step().step()
    for rank in (0, 1):
        world.exits(rank, 0, finished=True)
    world.run_end(0)
    told = last_words(session, 0, world.status())
    assert "at step 2 or later: the last words of ranks 0 and 1 were not heard" in told
