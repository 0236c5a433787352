"""Whole runs of four real ranks: followed, hurt, and told right."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from support import patient
from support.runs import Run, belonging_to, grave, kinds, live_run, torchrun, wait_until

pytestmark = pytest.mark.processes

RANKS = 4
LONG = ("--steps", "100000")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def steps(run: Run) -> list[int]:
    document = run.status()
    return [row["step"] for row in document["ranks"]] if document else []


def checked(document: dict[str, Any]) -> int:
    """The exit code of ``check``: on a busy machine a rank may straggle in truth, to the end."""
    return int(any(finding["severity"] != "info" for finding in document["findings"]))


def wait_running(run: Run) -> dict[int, int]:
    """Rank pids, once every rank has completed a few steps."""
    run.wait_status(
        lambda s: (
            s["state"] == "running"
            and len(s["ranks"]) == RANKS
            and min(row["step"] for row in s["ranks"]) >= 3
        ),
        "all ranks at step 3",
    )
    return run.rank_pids(RANKS)


def test_a_killed_hub_is_back_and_training_did_not_notice(home: Path) -> None:
    """kill -9 of the hub: same endpoint, state rebuilt, steps go on without a gap."""
    with live_run(home, torchrun(RANKS, *LONG)) as run:
        pids = wait_running(run)
        before = run.run_json()
        step_before = max(steps(run))
        os.kill(before["hub"]["pid"], signal.SIGKILL)
        wait_until(lambda: run.run_json()["hub"]["pid"] != before["hub"]["pid"], "a new hub")
        after = run.wait_status(
            lambda s: min(row["step"] for row in s["ranks"]) > step_before + 3, "steps go on"
        )
        assert run.run_json()["endpoint"] == before["endpoint"]
        assert after["state"] == "running"
        assert grave(after) is None
        assert {row["rank"]: row["pid"] for row in after["ranks"]} == pids
        assert all(psutil.pid_exists(pid) for pid in pids.values())


def test_a_killed_rank_is_named_also_after_everything_has_ended(home: Path) -> None:
    """kill -9 of rank 2: rank-dead with SIGKILL; the ranks torchrun then ends are its victims."""
    with live_run(home, torchrun(RANKS, *LONG), PYTHON_EXEC=sys.executable) as run:
        pids = wait_running(run)
        os.kill(pids[2], signal.SIGKILL)
        first = run.wait_status(grave, "a verdict")
        assert first["verdict"]["kind"] == "rank-dead"
        assert first["verdict"]["ranks"] == [2]
        assert run.process.wait(120) == 1
        last = run.wait_status(lambda s: s["state"] == "failed", "the end")
        verdict = last["verdict"]
        assert (verdict["kind"], verdict["severity"]) == ("rank-dead", "critical")
        assert verdict["ranks"] == [2]
        assert sorted(verdict["victims"]) == [0, 1, 3]
        assert "SIGKILL" in verdict["headline"]
        assert verdict["where"]["phase"] in {"data", "forward", "backward", "optimizer", "other"}
        assert kinds(last) == ["rank-dead"]
        assert run.ask("check").returncode == 1


def test_a_stopped_rank_is_named_and_the_finding_closes(home: Path) -> None:
    """kill -STOP of rank 1, then kill -CONT."""
    with live_run(home, torchrun(RANKS, *LONG)) as run:
        pids = wait_running(run)
        wait_until(lambda: run.ask("check").returncode == 0, "a healthy run")
        os.kill(pids[1], signal.SIGSTOP)
        try:
            found = run.wait_status(grave, "a verdict")
            assert found["verdict"]["kind"] == "rank-stopped"
            assert found["verdict"]["ranks"] == [1]
            still = run.wait_status(
                lambda s: (verdict := grave(s)) is not None and verdict["since_s"] > 7.0,
                "the same verdict seven seconds later",
            )
            assert kinds(still) == ["rank-stopped"]
        finally:
            os.kill(pids[1], signal.SIGCONT)
        clear = run.wait_status(lambda s: not kinds(s), "no finding")
        moved = max(row["step"] for row in clear["ranks"])
        run.wait_status(lambda s: s["state"] == "running" and s["step"] > moved, "training goes on")


def test_a_run_that_ends_well_is_finished_and_leaves_nothing(home: Path) -> None:
    """After the last rank, hub and sentinel end by themselves; the answer stays."""
    twelve = torchrun(2, "rankscope.trainers.ddp", "--steps", "12", module=patient.SELF)
    with live_run(home, twelve, PYTHONPATH=patient.path()) as run:
        assert run.process.wait(200) == 0
        wait_until(lambda: not belonging_to(home), "hub and sentinel gone")
        document = run.status()
        assert document is not None
        assert document["state"] == "finished"
        assert [row["step"] for row in document["ranks"]] == [12, 12]
        assert document["dropped"] == 0
        assert kinds(document) == []
        assert run.ask("check").returncode == checked(document)
        wait_until(lambda: not belonging_to(home), "the answering process gone")
