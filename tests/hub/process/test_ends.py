"""When a hub ends, and what it leaves: run.json and the log."""

import time
from pathlib import Path

import pytest

from rankscope.protocol import messages as m
from rankscope.protocol import rundir
from support.wire import Hub, hub_process, wait_until
from support.wirerank import Agent

pytestmark = pytest.mark.processes


def test_run_json_tells_where_the_hub_is_and_how_the_run_ended(hub: Hub) -> None:
    """Pid, start time, endpoint, world size while it lives; end and exit code afterwards."""
    info = hub.directory.read_info()
    assert hub.process is not None
    assert info.hub is not None
    assert info.hub.pid == hub.process.pid
    assert rundir.hub_is_alive(info)
    with hub.connect("agent") as a, hub.connect("operator") as client:
        Agent(a, world_size=3).hello()
        wait_until(lambda: hub.directory.read_info().world_size == 3, "the world size")
        a.send(m.RunEnd(3))
        client.wait_for_view("status", lambda status: status.state == "failed")
        assert client.command("end-hub").accepted
        assert hub.process.wait(60) == 0
    info = hub.directory.read_info()
    assert info.exit_code == 3
    assert info.ended_s is not None
    assert not rundir.hub_is_alive(info)


def test_a_term_signal_ends_it_in_order(hub: Hub) -> None:
    """The recording is whole, run.json tells the end, the exit code is 0."""
    with hub.connect("agent") as a, hub.connect("viewer") as client:
        Agent(a).hello()
        client.wait_for_view("status", lambda status: status.ranks)
    assert hub.terminate() == 0
    assert hub.directory.read_info().ended_s is not None
    assert "asked to end by SIGTERM" in hub.log()
    assert "Traceback" not in hub.log()


def test_it_ends_when_the_ranks_have_ended_and_no_client_is_left(tmp_path: Path) -> None:
    """Not before, and with exit code 0."""
    with hub_process(tmp_path, "--linger-s=0.5", "--client-left-s=5") as hub:
        assert hub.process is not None
        with hub.connect("agent") as a, hub.connect("viewer") as client:
            client.ping()  # it is there before the ranks have ended
            rank = Agent(a)
            rank.hello()
            rank.beat()
            rank.goodbye()
            client.wait_for_view("status", lambda status: status.state == "finished")
            deadline = time.monotonic() + 1.5
            while time.monotonic() < deadline:  # a client that asks keeps it
                assert client.view("status").ranks is not None
                assert hub.process.poll() is None
                time.sleep(0.1)
        assert hub.process.wait(60) == 0
        assert "all ranks have ended and no client is left" in hub.log()


def test_it_ends_soon_after_the_launchers_word(tmp_path: Path) -> None:
    """When no client has asked for a while; the sentinel is told at once."""
    with (
        hub_process(tmp_path, "--after-run-end-s=0.3") as hub,
        hub.connect("agent") as sentinel,
        hub.connect("agent") as launcher,
    ):
        assert hub.process is not None
        hello = m.NodeHello("here:1", 1, 0.0, "run-1", "here", 1, "", "", {})
        sentinel.send(hello)
        sentinel.ping()  # the hub knows it
        launcher.send(m.RunEnd(0))
        assert sentinel.receive_kind(m.RunOver) == m.RunOver()
        assert hub.process.wait(60) == 0
    assert hub.directory.read_info().exit_code == 0


def test_it_does_not_wait_for_ever_for_a_first_rank(tmp_path: Path) -> None:
    """Nobody came, nobody asks: it ends by itself."""
    with hub_process(tmp_path, "--nobody-s=3", "--client-left-s=0.2") as hub:
        assert hub.process is not None
        assert hub.process.wait(60) == 0
        assert "no rank was heard of" in hub.log()
