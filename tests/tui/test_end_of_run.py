"""What is asked of a hub right after its run ended: the answer waits for the verdict."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.protocol import messages as m
from rankscope.tui.launcher import session as sessions
from rankscope.tui.launcher.session import Session
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
