"""An ended run is answered by a hub that reads its directory."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from rankscope.protocol import keys
from rankscope.protocol import messages as m
from support.wire import Hub, Peer, new_run
from support.wirerank import Agent

pytestmark = pytest.mark.processes


def test_an_ended_run_is_answered_from_its_directory(hub: Hub) -> None:
    """Replay gives the views of the live hub, with keys of its own, until stdin closes."""
    with hub.connect("agent") as a, hub.connect("operator") as client:
        rank = Agent(a, world_size=2)
        rank.hello()
        for _ in range(3):
            rank.beat()
        rank.send(
            m.Raised,
            type="ValueError",
            message="no",
            traceback="Traceback …",
            source="t.py:1 in f",
            step=3,
            phase=m.Phase.FORWARD,
            from_peer=False,
            event_t_s=time.monotonic(),
        )
        rank.send(m.Goodbye, reason="exception", step=3)
        a.send(m.RunEnd(1))
        live = client.wait_for_view(
            "status", lambda status: status.state == "failed" and status.findings
        )
        page, incidents = client.view("rank", rank=0), client.view("incidents")
        client.command("end-hub")
        assert hub.process is not None
        assert hub.process.wait(60) == 0
    replay = subprocess.Popen(
        [sys.executable, "-m", "rankscope.hub", "--replay", str(hub.directory.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert replay.stdin is not None
    assert replay.stdout is not None
    try:
        line = json.loads(replay.stdout.readline())
        key = msgspec.convert(line["key"], keys.ClientKey)
        assert key.public not in hub.directory.read_info().public_keys.values()
        with Peer(line["endpoint"], key) as client:
            status = client.status()
            assert (status.state, status.step, status.exit_code) == ("failed", 3, 1)
            assert status.verdict is not None
            assert live.verdict is not None
            assert status.verdict.headline == live.verdict.headline
            assert client.view("rank", rank=0).exception == page.exception
            assert client.view("incidents") == incidents
            first = client.ask("overview")
            second = client.ask("overview")
            assert first.hub_s == second.hub_s
            assert first.body == second.body
    finally:
        replay.stdin.close()
        assert replay.wait(60) == 0
        replay.stdout.close()


def test_a_run_that_never_was_recorded_can_still_be_opened(tmp_path: Path) -> None:
    """An empty directory gives an empty view."""
    directory = new_run(tmp_path)
    replay = subprocess.Popen(
        [sys.executable, "-m", "rankscope.hub", "--replay", str(directory.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert replay.stdin is not None
    assert replay.stdout is not None
    try:
        line = json.loads(replay.stdout.readline())
        with Peer(line["endpoint"], msgspec.convert(line["key"], keys.ClientKey)) as client:
            assert client.status().ranks == []
    finally:
        replay.send_signal(signal.SIGTERM)
        assert replay.wait(60) == 0
        replay.stdin.close()
        replay.stdout.close()
