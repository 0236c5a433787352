"""A run whose hub was killed and did not come back: what was known is shown as that, not as now."""

import time
from pathlib import Path

import msgspec
import pytest

from rankscope.hub.replay import past
from rankscope.protocol import messages as m
from rankscope.protocol.rundir import HubProcess, RunDirectory
from support.outside import rankscope
from support.samples import MESSAGES
from support.wire import Hub, hub_process

pytestmark = pytest.mark.processes


def train(hub: Hub) -> None:
    """One healthy rank, heard of up to step 12."""
    with hub.connect("agent") as agent:
        hello = MESSAGES[m.Kind.HELLO]
        assert isinstance(hello, m.Hello)
        agent.send(msgspec.structs.replace(hello, run="run-1", rank=0, local_rank=0, world_size=1))
        beat = MESSAGES[m.Kind.BEAT]
        assert isinstance(beat, m.Beat)
        agent.send(msgspec.structs.replace(beat, rank=0, seq=2))
        agent.ping()


def test_a_hub_that_is_gone_is_the_verdict(tmp_path: Path) -> None:
    """Killed in the middle of a healthy run: no healthy word is said of it, in any command."""
    with hub_process(tmp_path) as hub:
        train(hub)
        hub.kill()
        status = rankscope(tmp_path, "status")
        assert status.code == 0
        assert "healthy" not in status.out
        assert "nothing is known since" in status.out
        words = " ".join(status.out.split())
        assert "ps -p 4711 (on node-a)" in words
        assert "watch it again: rankscope hub" in words
        check = rankscope(tmp_path, "check")
        assert check.code == 1
        assert "nothing is known since" in check.out


def test_a_run_that_ended_before_its_hub_was_killed_is_told_as_it_ended(tmp_path: Path) -> None:
    """All that could be known is known: its end is the verdict."""
    with hub_process(tmp_path) as hub:
        train(hub)
        with hub.connect("agent") as launcher:
            launcher.send(m.RunEnd(0))
            launcher.ping()
        hub.kill()
        assert rankscope(tmp_path, "check").code == 0


def test_the_age_of_what_is_known_is_told(tmp_path: Path) -> None:
    """Asked an hour later, the finding is an hour old."""
    with hub_process(tmp_path) as hub:
        train(hub)
        hub.kill()
        core, clock = past(hub.directory, hub.directory.read_info(), time.time() + 3600)
        (finding,) = core.know.findings
        assert finding.kind == "link-lost"
        assert 3590 < finding.since_s < 3700
        assert clock.now_s() < time.time()


def test_a_hub_that_could_not_write_run_json_is_still_found(tmp_path: Path) -> None:
    """Its disk was full: run.json names a dead pid, and the lock says who serves."""
    with hub_process(tmp_path) as hub:
        train(hub)
        info = hub.directory.read_info()
        assert info.hub is not None
        dead = HubProcess(2**22 + 5, info.hub.start_time_s)
        hub.directory.write_info(msgspec.structs.replace(info, hub=dead))
        assert RunDirectory(hub.directory.path).read_info().hub == info.hub
        status = rankscope(tmp_path, "status")
        assert "healthy" in status.out
