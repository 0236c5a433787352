"""A run whose hub is gone is watched again, and nothing of it says more than is known meanwhile."""

import json
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from rankscope.protocol import messages as m
from rankscope.protocol.pasting import words_for
from rankscope.protocol.rundir import hub_is_alive
from rankscope.tui.words.numbers import DASH
from support.outside import rankscope, refused
from support.ranks import SyntheticRun
from support.wire import hub_process, wait_until

pytestmark = pytest.mark.processes


def test_a_hub_that_is_gone_can_be_had_again(tmp_path: Path) -> None:
    """The ranks that still train are heard by it, at the same endpoint."""
    with hub_process(tmp_path) as hub, SyntheticRun(hub, 2):
        wait_until(lambda: "healthy" in rankscope(tmp_path, "status").out, "a healthy run")
        hub.kill()
        twins = [rankscope(tmp_path, name) for name in ("ranks", "collectives", "checkpoints")]
        table = twins[0].out
        assert "nothing is known since" in table
        assert table.count("? unknown") == 2
        for twin in twins[1:]:
            assert "nothing is known since" in twin.err
        assert "the hub is gone" in twins[2].out
        rows = json.loads(rankscope(tmp_path, "ranks", "--json").out)["ranks"]
        assert [row["link"] for row in rows] == ["down", "down"]
        ran = rankscope(tmp_path, "hub", hub.directory.run)
        assert (ran.code, ran.err) == (0, "")
        assert "has a hub again" in ran.out
        info = hub.directory.read_info()
        assert info.hub is not None
        try:
            again = rankscope(tmp_path, "hub", hub.directory.run)
            assert (again.code, "has a hub:" in again.out) == (0, True)
            wait_until(
                lambda: "healthy" in rankscope(tmp_path, "status").out, "a run that is heard"
            )
            assert DASH not in rankscope(tmp_path, "ranks").out.splitlines()[1].split()[:3]
        finally:
            os.kill(info.hub.pid, signal.SIGTERM)
            wait_until(lambda: not hub_is_alive(hub.directory.read_info()), "its end")


def test_a_hub_that_is_gone_is_named_beside_what_was_found_last(tmp_path: Path) -> None:
    """By every command: what was known is not shown as what is; and how to have a hub again."""
    with hub_process(tmp_path) as hub, SyntheticRun(hub, 2) as ranks:
        wait_until(lambda: "healthy" in rankscope(tmp_path, "status").out, "a healthy run")
        ranks.kill(1)
        wait_until(lambda: _killed(rankscope(tmp_path, "check").out), "the finding and the stall")
        hub.kill()
        again = f"rankscope hub {words_for(hub.directory.path)}"
        check = rankscope(tmp_path, "check")
        assert check.code == 1
        assert check.out.index("nothing is known since") < check.out.index("last known: RANK-DEAD")
        assert "STALLED" not in check.out
        assert again in check.out
        document = json.loads(rankscope(tmp_path, "check", "--json").out)
        assert document["verdict"]["headline"].startswith("nothing is known since")
        status = rankscope(tmp_path, "status").out
        assert status.index("nothing is known since") < status.index("rank-dead")
        assert "STALLED" not in status
        assert again in status
        answer = rankscope(tmp_path, "checkpoint")
        refused(answer, 3, "its hub is gone", again)
        assert "is over" not in answer.err
        stacks = rankscope(tmp_path, "stacks")
        assert stacks.err.count("nothing is known since") == 1


def test_several_who_want_a_hub_get_the_one_that_there_is(tmp_path: Path) -> None:
    """Asked for three times at once: one starts it, and the others are told that it is there."""
    with hub_process(tmp_path) as hub, SyntheticRun(hub, 2):
        wait_until(lambda: "healthy" in rankscope(tmp_path, "status").out, "a healthy run")
        hub.kill()
        with ThreadPoolExecutor(3) as pool:
            asking = [pool.submit(rankscope, tmp_path, "hub", hub.directory.run) for _ in range(3)]
            ran = [one.result() for one in asking]
        info = hub.directory.read_info()
        assert info.hub is not None
        try:
            assert [(one.code, one.err) for one in ran] == [(0, "")] * 3
            again = ["has a hub again" in one.out for one in ran]
            assert sum(again) == 1
            assert sum("has a hub:" in one.out for one in ran) == 2
        finally:
            os.kill(info.hub.pid, signal.SIGTERM)
            wait_until(lambda: not hub_is_alive(hub.directory.read_info()), "its end")


def test_of_a_run_that_is_over_its_hub_is_not_what_is_told(tmp_path: Path) -> None:
    """It stays for a while for whoever still looks; there is nothing to watch any more."""
    with hub_process(tmp_path) as hub:
        info = hub.directory.read_info()
        hub.directory.write_info(msgspec.structs.replace(info, ended_s=info.created_s, exit_code=0))
        told = rankscope(tmp_path, "hub", hub.directory.run)
        assert (told.code, told.err) == (0, "")
        assert f"run {hub.directory.run} is over: look at it with rankscope top" in told.out
        assert "has a hub" not in told.out


def test_a_hub_is_not_started_on_a_machine_on_which_no_rank_looks_for_it(tmp_path: Path) -> None:
    """The run directory is on a file system that several have: it says which one is meant, and
    nobody says of a hub that cannot be seen from here that it is gone."""
    with hub_process(tmp_path) as hub, SyntheticRun(hub, 1):
        wait_until(lambda: "healthy" in rankscope(tmp_path, "status").out, "a healthy run")
        hub.kill()
        info = hub.directory.read_info()
        assert info.host == socket.gethostname()
        hub.directory.write_info(msgspec.structs.replace(info, host="node-77"))
        again = f"rankscope hub {words_for(hub.directory.path)}"
        refused(rankscope(tmp_path, "hub", hub.directory.run), 2, "belongs to node-77", again)
        assert not hub_is_alive(hub.directory.read_info())
        status = " ".join(rankscope(tmp_path, "status").out.split())
        assert "the run's hub is on node-77" in status
        assert "is gone" not in status
        assert again not in status


def _killed(line: str) -> bool:
    return "STALLED" in line and "SIGKILL" in line


def test_a_run_that_is_over_gets_no_hub(tmp_path: Path) -> None:
    """Exit 2, and where its recording is looked at; as for a run that is not there."""
    with hub_process(tmp_path) as hub:
        with hub.connect("agent") as launcher:
            launcher.send(m.RunEnd(0))
            launcher.ping()
        wait_until(lambda: hub.directory.read_info().ended_s is not None, "the end in run.json")
        hub.kill()
        ran = rankscope(tmp_path, "hub", hub.directory.run)
        assert ran.code == 2
        assert f"is over; what was recorded: rankscope top {hub.directory.path}" in ran.err
        assert rankscope(tmp_path, "hub", "no-such-run").code != 0
