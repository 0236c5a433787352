"""The launcher is killed and its ranks train on: that is a live run, and ends as they do."""

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from support.runs import live_run, torchrun, wait_until

pytestmark = pytest.mark.processes


def test_ranks_that_a_killed_launcher_left_are_watched_to_their_end(tmp_path: Path) -> None:
    """``kill -9`` of torchrun alone: `rankscope run` ends with its code and says who is left, hub
    and sentinel stay; then the ranks are ended as the finding says, and the end is theirs."""
    home = tmp_path / "home"
    command = torchrun(2, "--steps", "1000000")
    with live_run(home, command, PYTHON_EXEC=sys.executable) as run:
        pids = run.rank_pids(2)
        launcher = psutil.Process(pids[0]).ppid()
        run.wait_status(lambda s: s["step"] >= 1, "a step")
        os.kill(launcher, signal.SIGKILL)
        assert run.process.wait(60) == 137
        assert "launcher died (SIGKILL); 2 ranks still train (exit code 137)" in run.output()
        left = run.wait_status(lambda s: s["verdict"], "who is left")
        assert (left["state"], left["verdict"]["kind"]) == ("running", "ranks-orphaned")
        assert f"kill {pids[0]} {pids[1]}" in left["verdict"]["next"]
        assert "live" in run.ask("ls").stdout
        later = run.wait_status(lambda s: s["step"] > left["step"], "a further step")
        assert later["state"] == "running"
        for pid in pids.values():
            os.kill(pid, signal.SIGTERM)
        over = run.wait_status(lambda s: s["state"] == "failed", "the end")
        assert over["verdict"]["kind"] == "run-interrupted"
        assert "SIGTERM" in over["verdict"]["headline"]
        wait_until(lambda: run.run_json()["exit_code"] == 137, "the end in run.json")
