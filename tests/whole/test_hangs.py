"""Real ranks that hang: called what it is, and shown where, while they hang."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.runs import RANKSCOPE, Run, environment, live_run, torchrun

pytestmark = pytest.mark.processes


def asked(run: Run, *command: str) -> Any:
    done = run.ask(*command, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_rank_in_a_lock_is_found_and_its_stack_stands_on_top(tmp_path: Path) -> None:
    """The verdict, the stacks and the groups of a run that waits for one rank tell the same."""
    trainer = ("--steps", "100000", "--fault", "lock@1:8", "--fault-log", str(tmp_path / "log"))
    with live_run(tmp_path / "home", torchrun(2, *trainer)) as run:
        status = run.wait_status(
            lambda s: (
                s["verdict"] is not None
                and s["verdict"]["severity"] == "critical"
                and "source" in s["verdict"]["where"]
            ),
            "a verdict",
        )
        verdict = status["verdict"]
        assert (verdict["kind"], verdict["ranks"], verdict["step"]) == (
            "missing-collective",
            [1],
            8,
        )
        assert verdict["where"]["source"].endswith(" in take_twice")
        assert verdict["where"]["collective"].endswith("all_reduce")

        stacks = asked(run, "stacks")
        assert stacks["groups"][0]["ranks"] == [1]
        assert stacks["groups"][0]["source"].endswith(" in take_twice")
        threads = asked(run, "stacks", "--rank", "1")["threads"]
        # Read from outside, as where the rank did not answer soon enough, native frames come first.
        assert "take_twice" in [frame["function"] for frame in threads["MainThread"]]

        (group,) = asked(run, "collectives")["groups"]
        assert (group["behind"], group["waiting"]) == ([1], [0])
        assert run.ask("check").returncode == 1
        _a_stop_is_given_up_at_once(run)
        _a_stop_says_what_it_waits_for(run)


def _a_stop_is_given_up_at_once(run: Run) -> None:
    """With who does not come and how the run is ended; nothing stays asked for."""
    done = run.ask("stop")
    assert done.returncode == 1, done
    assert "rank 1 is stuck and cannot reach the end of a step (" in done.stderr
    assert f"kill {run.process.pid}; or Ctrl-C" in done.stderr
    assert "cancelled" in done.stdout
    now = asked(run, "checkpoints")
    assert now["command"] is None
    assert [one["state"] for one in now["commands"] if one["command"] == "stop"] == ["cancelled"]


def _a_stop_says_what_it_waits_for(run: Run) -> None:
    """At once, and that it stays asked for when nobody waits any more."""
    words = [*RANKSCOPE, "stop", "--wait"]
    home = environment(run.home)
    with subprocess.Popen(words, env=home, stderr=subprocess.PIPE, text=True) as stop:
        assert stop.stderr is not None
        first, second = stop.stderr.readline(), stop.stderr.readline()
        assert first.startswith("rankscope: rank 1 is stuck and cannot reach the end of a step (")
        assert "rank 1 never entered" in first
        assert "cancel" in first
        assert f"kill {run.process.pid}; or Ctrl-C" in second
        stop.send_signal(signal.SIGINT)
        assert "the stop stays asked for: rankscope cancel " in stop.stderr.read()
    assert stop.returncode == 130
    late = run.ask("cancel", "--timeout", "100")
    assert late.returncode == 0, late
