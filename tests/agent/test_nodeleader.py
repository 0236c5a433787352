"""Seeing to it that a node has one sentinel that works, whatever happens to it or to its folder."""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from rankscope.agent import nodedir, nodeleader
from rankscope.agent.hublink import HubAddress
from rankscope.agent.identity import ALONE
from rankscope.agent.nodeleader import NodeLeader
from rankscope.protocol.messages import RunOver
from support.noderouter import NodeRouter
from support.wire import wait_until

pytestmark = pytest.mark.processes


class Node:
    """A leader in this process, whose clock runs as fast as the test likes."""

    def __init__(self, hub: NodeRouter) -> None:
        self.hub = hub
        self.address = HubAddress(hub.key.run, hub.endpoint, hub.key)
        self.leader = NodeLeader(self.address, ALONE)
        self.folder = nodedir.node_dir(hub.key.run)
        self.now = 1000.0

    def tick(self, later_s: float = nodeleader.LOOK_EVERY_S) -> None:
        self.now += later_s
        self.leader.tick(self.now)

    def sentinels(self) -> list[psutil.Process]:
        """Those of this very node's folder that live."""
        found = []
        for process in psutil.process_iter():
            try:
                if str(self.folder) in process.cmdline() and process.status() != "zombie":
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def until(self, condition: Callable[[], bool], what: str, step_s: float = 0.0) -> None:
        def look() -> bool:
            self.hub.pump(0.05)
            if step_s:
                self.tick(step_s)
            return condition()

        wait_until(look, what, 90)

    def watched(self) -> bool:
        """Whether one sentinel is there that has its lock and tells of this rank."""
        path = nodedir.sentinel_lock_path(self.folder)
        found = self.sentinels()
        return (
            len(found) == 1
            and nodedir.is_locked(path)
            and path.read_text().startswith(f"{found[0].pid} ")
        )


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with NodeRouter(run="run-leader") as hub:
        node = Node(hub)
        try:
            node.tick()
            node.until(node.watched, "a sentinel")
            yield node
        finally:
            node.leader.close()
            for process in node.sentinels():
                with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                    process.kill()
                    process.wait(60)


def test_a_sentinel_that_is_stopped_is_replaced(node: Node) -> None:
    """One that shows no life is killed, and another one watches; a live one is left alone."""
    (first,) = node.sentinels()
    for _ in range(12):
        time.sleep(1.1 / 12)  # it shows that it lives while the leader's clock runs on
        node.tick(0.5)
    node.hub.wait_for(node.hub.reports)
    assert node.sentinels() == [first]
    first.suspend()
    node.until(
        lambda: node.watched() and node.sentinels() != [first], "a new one", nodeleader.LOOK_EVERY_S
    )
    assert not first.is_running() or first.status() == "zombie"


def test_a_killed_sentinel_is_replaced_however_often(node: Node) -> None:
    """There is no number of deaths after which a node stays unwatched."""
    for _ in range(3):
        node.until(node.watched, "a sentinel")
        (before,) = node.sentinels()
        before.kill()
        node.until(
            lambda before=before: node.watched() and node.sentinels() != [before],  # type: ignore[misc]
            "a new one",
            nodeleader.MAX_WAIT_S,
        )


def test_a_folder_that_was_removed_is_made_again_with_one_sentinel(node: Node) -> None:
    """However the race goes, one sentinel is left, it holds the lock, the rank is registered."""
    for _ in range(2):
        shutil.rmtree(node.folder)
        node.until(
            lambda: node.folder.exists() and node.watched(), "one sentinel", nodeleader.LOOK_EVERY_S
        )
        assert node.leader.lock is not None
        assert nodedir.is_at(node.leader.lock, nodedir.leader_lock_path(node.folder))
        assert len(nodedir.read_registrations(node.folder)) == 1
    (left,) = node.sentinels()
    node.hub.say(RunOver())
    node.until(lambda: not left.is_running() or left.status() == "zombie", "its end")


@pytest.mark.parametrize("trouble", ["open to others", "a link", "an error"])
def test_a_passing_error_costs_no_sentinel(
    trouble: str, node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once, and when it has passed the node is watched again."""
    (before,) = node.sentinels()
    before.kill()
    moved = node.folder.with_name("moved")

    def fail(*_: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        if trouble == "open to others":
            (node.folder / "ranks" / "0-0.json").unlink()
            node.folder.chmod(0o755)
        elif trouble == "a link":
            node.folder.rename(moved)
            node.folder.symlink_to(tmp_path_of(node) / "nowhere")
        else:
            patch.setattr(nodedir, "is_locked", fail)
        for _ in range(5):
            node.tick(nodeleader.MAX_WAIT_S)
        assert caplog.text.count("no sentinel on this node") == 1
    if trouble == "open to others":
        node.folder.chmod(0o700)
    elif trouble == "a link":
        node.folder.unlink()
        moved.rename(node.folder)
    node.until(node.watched, "a sentinel", nodeleader.MAX_WAIT_S)


def tmp_path_of(node: Node) -> Path:
    return node.folder.parent


def test_pointers_of_launchers_that_are_gone_are_removed_in_the_end(node: Node) -> None:
    """The last sentinel of a run leaves no pointer of a launcher behind that has ended."""
    gone = nodedir.base_dir() / "launcher-4194305-100.json"
    gone.write_text("{}")
    ours = nodedir.base_dir() / f"launcher-{os.getpid()}-{round(started_s() * 100)}.json"
    ours.write_text("{}")
    (left,) = node.sentinels()

    def ended() -> bool:
        node.hub.say(RunOver())  # again, as a hub does: it may not have spoken to this one yet
        return not left.is_running() or left.status() == "zombie"

    node.until(ended, "its end")
    assert not gone.exists()
    assert ours.exists()


def started_s() -> float:
    from rankscope.protocol.procs import start_time_s

    found = start_time_s(os.getpid())
    assert found is not None
    return found


def test_a_strangers_process_is_never_killed(node: Node) -> None:
    """A lock that stays as it is, with a pid that is no sentinel's, costs nobody anything."""
    (first,) = node.sentinels()
    os.kill(first.pid, signal.SIGSTOP)
    path = nodedir.sentinel_lock_path(node.folder)
    path.write_text(f"{os.getpid()} {started_s()}\n")
    for _ in range(10):
        node.tick()
    assert first.is_running()
