"""Pause, resume, save and stop: an operator and a live run, from the command line to the end."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.runs import Run, kinds, live_run, torchrun

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]


def steps(status: dict[str, Any]) -> set[int]:
    return {row["step"] for row in status["ranks"]}


def asked(run: Run, *command: str) -> dict[str, Any]:
    """What came of a command that was followed."""
    answer = run.ask(*command, "--json", "--timeout", "300", timeout_s=320)
    assert answer.returncode == 0, answer
    found: dict[str, Any] = json.loads(answer.stdout)["command"]
    return found


def test_a_run_is_paused_goes_on_saves_and_stops_as_an_operator_wants_it(tmp_path: Path) -> None:
    """No hang is found while it stands still; the loop ends after the step that was saved, with
    exit code 0; all of it is in the log with who wanted it."""
    trainer = ("--steps", "100000", "--checkpoint-dir", str(tmp_path / "saved"))
    with live_run(tmp_path / "home", torchrun(2, *trainer)) as run:
        run.wait_status(lambda s: len(s["ranks"]) == 2 and min(steps(s)) >= 2, "both at step 2")
        paused = asked(run, "pause", "--minutes", "60")
        assert paused["state"] == "paused"
        standing = run.wait_status(lambda s: s["state"] == "paused", "it is paused")
        assert steps(standing) == {paused["step"]}
        assert "rankscope resume" in standing["control"]
        saved = asked(run, "checkpoint")
        assert (saved["state"], saved["step"]) == ("done", paused["step"])
        refused = run.ask("pause")
        assert refused.returncode == 1
        assert "rankscope resume" in refused.stderr
        still = run.status()
        assert still is not None
        assert (still["state"], steps(still)) == ("paused", {paused["step"]})
        assert kinds(still) == []

        assert asked(run, "resume")["state"] == "done"
        run.wait_status(lambda s: min(steps(s)) > paused["step"], "it goes on")
        stopped = asked(run, "checkpoint", "--stop")
        assert run.process.wait(120) == 0, run.output()
        assert f"stopped after step {stopped['step']}, as was asked" in run.output()
        whole = run.ask("verify-checkpoint", str(tmp_path / "saved" / "latest"), "--json")
        assert json.loads(whole.stdout)["step"] == stopped["step"]
        log = run.ask("incidents").stdout
        for command in ("pause", "resume", "checkpoint-and-stop"):
            assert f"asks for: {command}" in log
        assert "pause by" in log
        assert "was refused: the run is paused" in " ".join(log.split())
