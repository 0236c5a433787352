"""Ctrl-C between our own words: it reaches the command, whose end is told like any other."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.outside import nothing_left, rankscope
from support.runs import RANKSCOPE, environment, wait_until
from support.terminal import Terminal

pytestmark = pytest.mark.processes

# `rankscope` with its own Ctrl-C: once, at the moment at which it has said words that begin so.
SELF_INTERRUPTED = """
import os, signal, sys
from rankscope.tui.cli import main
from rankscope.tui.text import output
import rankscope.tui.launcher.session as session
at, group, words = sys.argv[1], sys.argv[2] == "group", session.complain
def complain(line):
    global at
    words(line)
    if at and line.startswith(f"rankscope: {at}"):
        at = ""
        if group:
            os.killpg(0, signal.SIGINT)
        else:
            os.kill(os.getpid(), signal.SIGINT)
session.complain = complain
sys.exit(main(sys.argv[3:]))
"""

ENDLESS = "import time; print('said', flush=True); time.sleep(600)"


PYTHON = (sys.executable, "-c")


def interrupted(at: str, whom: str, *arguments: str) -> list[str]:
    """``rankscope ARGUMENTS`` that interrupts itself, ``alone`` or with its ``group``."""
    return [*PYTHON, SELF_INTERRUPTED, at, whom, *arguments]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def told_code(home: Path) -> object:
    """The exit code that the run's final state has."""
    return json.loads(rankscope(home, "status", "--json").out)["exit_code"]


@pytest.mark.parametrize("at", ["run mine; watch", "run mine: "])
def test_a_run_is_interrupted(home: Path, at: str) -> None:
    """Before the command is there nothing is started, or kept; at the last words it has ended."""
    early = at != "run mine: "
    with nothing_left(home, but_hub=not early):
        ran = subprocess.run(
            interrupted(at, "alone", "run", "--run-id", "mine", "--", *PYTHON, "print('trained')"),
            env=environment(home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            start_new_session=True,
        )
        assert ran.returncode == (130 if early else 0), ran
        assert "Traceback" not in ran.stderr
        assert ran.stdout == ("" if early else "trained\n")
        assert (home / "runs" / "mine").exists() is not early
        if not early:
            assert told_code(home) == 0


@pytest.mark.parametrize("at", ["the command's output goes to", "the command goes on", "run mine"])
def test_a_run_beside_a_dashboard_is_interrupted(home: Path, at: str) -> None:
    """Before its dashboard, after it, and at the last words."""
    quits = at != "the command's output goes to"
    command = ["run", "--tui", "--run-id", "mine", "--", *PYTHON, ENDLESS]
    with (
        nothing_left(home, but_hub=True),
        Terminal(
            interrupted(at, "group", *command),
            columns=200,
            env=environment(home),
        ) as terminal,
    ):
        if quits:
            terminal.wait_for("mine", "starting")
            log = home / "runs" / "mine" / "command.log"
            wait_until(lambda: log.read_text() == "said\n", "its output")
            terminal.press("q")
        if at == "run mine":
            terminal.wait_for("the command goes on")
            os.write(terminal._master, b"\x03")
        assert terminal.exit_code() == 130
        terminal.wait_for("rankscope: run mine: ", "the command's output is in")
        assert terminal.unclean() == []
        assert told_code(home) == 130


# Tells each signal in a file, and ends at SIGTERM, or when the file ``end`` is there.
HEEDFUL = """
import pathlib, signal, sys, time
told, end = map(pathlib.Path, sys.argv[1:])
def ended(number, frame):
    told.write_text("SIGTERM")
    raise SystemExit(7)
signal.signal(signal.SIGTERM, ended)
told.write_text("up")
while not end.exists():
    time.sleep(0.05)
raise SystemExit(9)
"""


@pytest.mark.parametrize(("key", "code"), [("", 7), ("q", 9)])
def test_a_run_beside_a_dashboard_that_cannot_end(
    home: Path, tmp_path: Path, key: str, code: int
) -> None:
    """Its terminal reads nothing: SIGTERM reaches the command, and a key leaves it going, watched
    until it ends."""
    told, end = tmp_path / "told", tmp_path / "end"
    command = ["run", "--tui", "--run-id", "mine", "--", *PYTHON, HEEDFUL, str(told), str(end)]
    with (
        nothing_left(home, but_hub=True),
        Terminal([*RANKSCOPE, *command], columns=200, env=environment(home)) as terminal,
    ):
        terminal.wait_for("mine", "starting")
        wait_until(lambda: told.exists() and told.read_text() == "up", "the command")
        terminal.fill()
        if key:
            terminal.press(key)
            end.touch()
        else:
            terminal.signal(signal.SIGTERM)
        assert terminal.process.wait(60) == code
        assert told.read_text() == ("up" if key else "SIGTERM")
    assert told_code(home) == code


def test_an_impatient_end_of_a_demo_leaves_nothing(home: Path) -> None:
    """Ctrl-C while the demo's training is being ended: it ends at once, and the end is told."""
    at = "ending the demo's training"
    with (
        nothing_left(home, but_hub=True),
        Terminal(
            interrupted(at, "group", "demo", "--ranks", "1", "--steps", "100000"),
            columns=120,
            env=environment(home),
        ) as terminal,
    ):
        terminal.wait_for("healthy", "loss", within_s=120)
        terminal.press("q")
        terminal.wait_for("demo ended by you", within_s=120)
        assert terminal.exit_code() == 0
        assert terminal.unclean() == []
        assert told_code(home) is not None


LATE = """
import atexit, os, signal, sys
from rankscope.tui.cli import main
atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.argv = ["rankscope", *sys.argv[1:]]
sys.exit(main())
"""


@pytest.mark.parametrize(("command", "code"), [(["--version"], 0), (["status", "no-such-run"], 2)])
def test_an_interrupt_after_the_last_word_changes_nothing(
    home: Path, command: list[str], code: int
) -> None:
    """While the interpreter takes itself apart: no traceback, and the exit code is that of what was
    said."""
    ran = subprocess.run(
        [sys.executable, "-c", LATE, *command],
        env=environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == code, ran
    assert "Traceback" not in ran.stderr
    assert ran.stderr.count("\n") == (code != 0)
