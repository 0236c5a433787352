"""``rankscope demo`` from outside: real training, told in lines, in JSON, or on the dashboard."""

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import IO

import pytest

from rankscope.tui.runs import listed
from support.outside import nothing_left, rankscope, started
from support.runs import RANKSCOPE, environment, kinds, wait_until
from support.terminal import Terminal

pytestmark = pytest.mark.processes

ENDLESS = ("--ranks", "1", "--steps", "100000")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_a_headless_demo_trains_and_sums_up(home: Path) -> None:
    """One JSON document on stdout; progress and a summary on stderr, free of escapes."""
    with nothing_left(home, but_hub=True):
        result = subprocess.run(
            [*RANKSCOPE, "demo", "--headless", "--ranks", "2", "--steps", "20", "--json"],
            env=environment(home),
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        document = json.loads(result.stdout)
        assert document["state"] == "finished"
        assert [row["step"] for row in document["ranks"]] == [20, 20]
        assert document["dropped"] == 0
        assert document["losses"]["last"] < document["losses"]["first"] - 1
        lines = result.stderr.splitlines()
        assert any("step" in line and "/20" in line and "step/s" in line for line in lines), lines
        assert "finished at step 20" in lines[-1]
        assert "it learned" in lines[-1]
        assert "\x1b" not in result.stderr
        straggled = [one for one in document["findings"] if one["severity"] != "info"]
        assert rankscope(home, "check").code == int(bool(straggled))
        assert kinds(document) == []


def until_a_step_has_ended(lines: IO[str]) -> None:
    """A line is said as soon as a rank is known; before its first step nothing can be saved."""
    for line in lines:
        if (found := re.search(r"step +(\d+)/", line)) and int(found[1]):
            return
    pytest.fail("the demo ended before its first step did")


def test_a_demo_can_be_saved_and_stopped(home: Path) -> None:
    """What a newcomer tries first works in the first run they see; where it is saved is said."""
    with (
        nothing_left(home, but_hub=True),
        started(home, "demo", "--headless", *ENDLESS) as process,
    ):
        assert process.stderr is not None
        until_a_step_has_ended(process.stderr)
        stopped = rankscope(home, "checkpoint", "--stop")
        assert stopped.code == 0, stopped
        rest = process.stderr.read()
        assert process.wait(60) == 0
    (run,) = (path for path in (home / "runs").iterdir() if not path.is_symlink())
    assert f"checkpoints are in {run / 'checkpoints'}" in rest
    assert rankscope(home, "verify-checkpoint", str(run / "checkpoints" / "latest")).code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_a_headless_demo_that_is_told_to_end_leaves_nothing(
    home: Path, number: signal.Signals
) -> None:
    """The signal is passed on; ranks, sentinel and hub end."""
    with (
        nothing_left(home, but_hub=True),
        started(home, "demo", "--headless", *ENDLESS) as process,
    ):
        assert process.stderr is not None
        assert "step" in process.stderr.readline()
        process.send_signal(number)
        assert process.wait(120) != 0
        assert "Traceback" not in process.stderr.read()


def test_the_demo_on_a_terminal_shows_the_dashboard_and_q_ends_it(home: Path) -> None:
    """The screen follows the training; q ends both, says so, and leaves the terminal clean."""
    with (
        nothing_left(home, but_hub=True),
        Terminal([*RANKSCOPE, "demo", *ENDLESS], env=environment(home)) as terminal,
    ):
        terminal.wait_for("healthy", "loss", within_s=120)
        terminal.wait_for("q end demo")
        terminal.press("q")
        terminal.wait_for("ending the demo", within_s=120)
        terminal.wait_for("demo ended by you at step", within_s=120)
        assert terminal.exit_code(within_s=120) == 0
        assert "FAILED" not in terminal.text()
        assert terminal.unclean() == []
        (row,) = listed(home / "runs")
        assert row.stopped_by, row  # not interrupted: its ranks have ended their loop
        assert row.severity is None


def test_run_beside_a_dashboard(home: Path) -> None:
    """Quitting leaves the command going; its output is in a file whose path is told."""
    program = "import time; print('said', flush=True); time.sleep(600)"
    command = [*RANKSCOPE, "run", "--tui", "--name", "quiet", "--"]
    with (
        nothing_left(home, but_hub=True),
        Terminal(
            [*command, "python3", "-c", program], columns=200, env=environment(home)
        ) as terminal,
    ):
        terminal.wait_for("quiet", "starting")
        log = home / "runs" / "latest" / "command.log"
        wait_until(lambda: log.read_text() == "said\n", "its output")
        terminal.press("q")
        terminal.wait_for("the command goes on; Ctrl-C ends it")
        terminal.press("ctrl+c")
        assert terminal.exit_code() == 130
        terminal.wait_for("command.log")
        assert terminal.unclean() == []
