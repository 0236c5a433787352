"""Save now: an operator's request on a live run, from the command line to the disk and back."""

import json
from pathlib import Path

import pytest

from support.runs import kinds, live_run, torchrun

pytestmark = pytest.mark.processes


def test_a_checkpoint_is_asked_for_and_complete_while_training_goes_on(tmp_path: Path) -> None:
    """The command waits for it; what it names verifies; steps go on; the run knows the newest."""
    trainer = ("--steps", "100000", "--checkpoint-dir", str(tmp_path / "saved"))
    with live_run(tmp_path / "home", torchrun(2, *trainer)) as run:
        run.wait_status(
            lambda s: len(s["ranks"]) == 2 and min(row["step"] for row in s["ranks"]) >= 2,
            "both ranks at step 2",
        )
        asked = run.ask("checkpoint", "--json")
        assert asked.returncode == 0, asked
        outcome = json.loads(asked.stdout)["outcome"]
        assert outcome["ok"]
        verified = run.ask("verify-checkpoint", outcome["path"], "--json")
        assert verified.returncode == 0, verified
        found = json.loads(verified.stdout)
        assert (found["state"], found["step"]) == ("complete", outcome["step"])
        after = run.wait_status(
            lambda s: min(row["step"] for row in s["ranks"]) > outcome["step"] + 1, "steps go on"
        )
        assert after["last_checkpoint"] == {
            "step": outcome["step"],
            "path": outcome["path"],
            "verified": True,
            "resumed": False,
            "notfinite": "",
            "finite_step": None,
        }
        assert (outcome["notfinite"], found["notfinite"]) == ("", "")
        assert kinds(after) == []


def test_a_run_without_a_checkpointer_says_so(tmp_path: Path) -> None:
    """Exit 1, in one line, and nothing is waited for."""
    with live_run(tmp_path / "home", torchrun(1, "--steps", "100000")) as run:
        run.wait_status(lambda s: bool(s["ranks"]) and s["ranks"][0]["step"] >= 1, "a step")
        asked = run.ask("checkpoint")
        assert asked.returncode == 1, asked
        assert "this run has no checkpointer" in asked.stderr
        assert asked.stderr.count("\n") == 1
