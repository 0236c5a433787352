"""A hub that was killed, was stopped, or lost what it had recorded."""

import os
import signal
import time

import msgspec
import pytest

from rankscope.protocol import messages as m
from rankscope.protocol import shapes
from support.wire import Hub, wait_until
from support.wirerank import Agent

pytestmark = pytest.mark.processes


def test_a_hub_killed_hard_is_back_on_its_endpoint_with_its_state(hub: Hub) -> None:
    """kill -9: peers that stay connected go on, and what was lost meanwhile is counted."""
    with hub.connect("agent") as a, hub.connect("viewer") as client:
        rank = Agent(a)
        rank.hello()
        for _ in range(5):
            rank.beat()
        before = client.wait_for_view("status", lambda status: status.step == 5)
        endpoint, version = hub.endpoint, client.ask("status").version
        hub.kill()
        rank.seq += 3  # three messages that nobody will ever see
        hub.start()
        assert hub.endpoint == endpoint
        status = client.view("status")
        assert (status.step, status.name) == (5, before.name)
        rank.beat()
        status = client.wait_for_view("status", lambda status: status.step == 6)
        assert (status.ranks[0].missed, status.dropped) == (3, 3)
        assert client.ask("status").version > version
        overview = client.view("overview")
        assert overview.hub_restarts == 1
        assert overview.history.step == [1, 2, 3, 4, 5, 6]
        # The hub of before gave this version: the whole view comes, not a difference.
        body = client.ask("status", version).body
        assert msgspec.msgpack.decode(body, type=shapes.Status).full


def test_a_hub_that_was_stopped_accuses_nobody(hub: Hub) -> None:
    """SIGSTOP and SIGCONT of the hub: it was away itself, and nobody was silent to it."""
    with hub.connect("agent") as a, hub.connect("agent") as b, hub.connect("viewer") as client:
        agents = [Agent(peer, rank, world_size=2) for rank, peer in enumerate((a, b))]
        for agent in agents:
            agent.hello()
            agent.beat()
        client.wait_for_view("status", lambda status: [r.step for r in status.ranks] == [1, 1])
        assert hub.process is not None
        os.kill(hub.process.pid, signal.SIGSTOP)
        time.sleep(6.0)  # the very thing that is tested: longer than a silence that is a finding
        os.kill(hub.process.pid, signal.SIGCONT)
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            status = client.view("status")
            assert status.findings == []
            assert {row.link for row in status.ranks} <= {"up", "silent"}
            for agent in agents:  # else they would be silent in truth
                agent.beat()
        kinds = {one.finding.kind for one in client.view("incidents").incidents}
        assert kinds <= {"hub-away"}


def test_a_hub_that_lost_its_recording_asks_who_is_there(hub: Hub) -> None:
    """Peers introduce themselves again, and nothing else is needed."""
    with hub.connect("agent") as a, hub.connect("viewer") as client:
        rank = Agent(a)
        rank.hello()
        client.wait_for_view("status", lambda status: status.ranks)
        hub.kill()
        for path in hub.directory.recording.iterdir():
            path.unlink()
        hub.start()

        def asked() -> bool:
            rank.beat()
            return isinstance(a.receive(0.1), m.WhoAreYou)

        wait_until(asked, "the question who is there")
        rank.hello()
        status = client.wait_for_view("status", lambda s: s.ranks and s.ranks[0].host == "here")
        assert status.world_size == 1
