"""Whatever happens to rankscope beside a run, the run computes the same, bit for bit."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from support.runs import (
    RANKSCOPE,
    Run,
    belonging_to,
    environment,
    kinds,
    live_run,
    torchrun,
    wait_until,
)
from support.terminal import Terminal

pytestmark = pytest.mark.processes

RANKS = 2
SMALL = (
    *("--layers", "2", "--dim", "64", "--seq-len", "64", "--batch-size", "4"),
    *("--steps", "100000"),
)
"""Steps of some milliseconds, and more than a test waits for: it ends the run."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def trainer(history: Path, ranks: int = RANKS) -> list[str]:
    return torchrun(ranks, *SMALL, "--history", str(history))


def unwatched(tmp_path: Path, steps: int) -> list[str]:
    """So many steps' losses and gradient norms of the same training without rankscope."""
    history = tmp_path / "unwatched.jsonl"
    with subprocess.Popen(
        trainer(history),
        env=environment(tmp_path / "unused", RANKSCOPE="off"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            wait_until(lambda: lines(history) >= steps, f"{steps} steps", 200)
        finally:
            process.terminate()
    return history.read_text().splitlines()[:steps]


def lines(history: Path) -> int:
    """The whole ones: steps that are done."""
    return history.read_text().count("\n") if history.exists() else 0


def sentinel_of(home: Path) -> psutil.Process | None:
    for process in belonging_to(home):
        with contextlib.suppress(psutil.Error):  # it has just ended
            if "rankscope.agent.sentinel" in process.cmdline():
                return process
    return None


def dashboard(run: Run) -> Terminal:
    return Terminal([*RANKSCOPE, "top"], env=environment(run.home))


def test_training_is_bitwise_the_same_while_everything_beside_it_is_killed(
    home: Path, tmp_path: Path
) -> None:
    """Hub, sentinel and dashboards die while it runs; losses and gradient norms stay equal."""
    history = tmp_path / "watched.jsonl"
    with live_run(home, trainer(history)) as run:
        wait_until(lambda: lines(history) >= 3, "training")
        pids = run.rank_pids(RANKS).values()
        for pid in pids:  # dashboards start sooner without it
            os.kill(pid, signal.SIGSTOP)
        with dashboard(run) as first, dashboard(run) as second:
            first.wait_for("step", within_s=90)
            second.wait_for("step", within_s=90)
            wait_until(lambda: sentinel_of(home), "a sentinel").kill()
            kill_hub(run)
            second.signal(signal.SIGKILL)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            before = lines(history)
            wait_until(lambda: lines(history) > before + 3, "training goes on")
            first.signal(signal.SIGSTOP)
            kill_hub(run)
            first.signal(signal.SIGKILL)
        before = lines(history)
        wait_until(lambda: lines(history) > before + 3, "training goes on")
    steps = lines(history)
    assert history.read_text().splitlines()[:steps] == unwatched(tmp_path, steps)


def kill_hub(run: Run) -> None:
    """kill -9 the hub; the one that takes its place has another pid."""
    before = run.hub_pid()
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: run.hub_pid() != before, "a new hub")


def test_dashboards_come_and_go_in_every_way(home: Path, tmp_path: Path) -> None:
    """q, Ctrl-C, SIGHUP, SIGTERM, SIGKILL and a lost terminal, beside a loop of status calls."""
    history = tmp_path / "watched.jsonl"
    with live_run(home, trainer(history, ranks=1)) as run:
        run.wait_status(lambda s: s["step"] >= 3, "training")
        ranks = run.rank_pids(1)

        def still_training() -> None:
            before = lines(history)
            wait_until(lambda: lines(history) > before + 2, "training goes on")
            document = run.status()
            assert document is not None
            assert document["state"] == "running"
            assert kinds(document) == []
            assert {row["rank"]: row["pid"] for row in document["ranks"]} == ranks

        with dashboard(run) as witness:
            witness.wait_for("healthy", within_s=90)
            for way, code in (
                ("q", 0),
                ("ctrl+c", 130),
                (signal.SIGTERM, 128 + signal.SIGTERM),
                (signal.SIGHUP, 128 + signal.SIGHUP),
            ):
                with dashboard(run) as terminal:
                    terminal.wait_for("healthy", within_s=90)
                    if isinstance(way, signal.Signals):
                        terminal.signal(way)
                    else:
                        terminal.press(way)
                    assert terminal.exit_code() == code, way
                    assert terminal.unclean() == [], way
                still_training()
            with dashboard(run) as terminal:
                terminal.wait_for("healthy", within_s=90)
                terminal.signal(signal.SIGKILL)
                assert terminal.exit_code() == -signal.SIGKILL
            still_training()
            with dashboard(run) as terminal:
                terminal.wait_for("healthy", within_s=90)
                terminal.hang_up()
                wait_until(lambda: terminal.process.poll() is not None, "its end")
            still_training()
            witness.wait_for("healthy")
            witness.press("q")
            assert witness.exit_code() == 0
        still_training()
