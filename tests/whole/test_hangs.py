"""Real ranks that hang: called what it is, and shown where, while they hang."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.runs import Run, live_run, torchrun

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
        assert threads["MainThread"][0]["function"] == "take_twice"

        (group,) = asked(run, "collectives")["groups"]
        assert (group["behind"], group["waiting"]) == ([1], [0])
        assert run.ask("check").returncode == 1
