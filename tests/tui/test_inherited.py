"""What the command of ``rankscope run`` inherits is what it would have had without it."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.outside import nothing_left, started
from support.runs import RANKSCOPE, environment

pytestmark = pytest.mark.processes

# Which signals it ignores, and what can be read from the descriptor that the shell gave it.
TELLS = """
import os, signal
print([number.name for number in signal.Signals if signal.getsignal(number) is signal.SIG_IGN])
print(os.read(7, 100).decode())
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.mark.parametrize("ignored", ["HUP INT QUIT", "TERM USR1"])
def test_signals_that_are_ignored_and_open_files(home: Path, tmp_path: Path, ignored: str) -> None:
    """As under nohup, in the background of a script, and with ``<(…)`` on the command line."""
    told = tmp_path / "told"
    told.write_text("from the shell")
    command = shlex.join([sys.executable, "-c", TELLS])

    def ran(words: str) -> "subprocess.CompletedProcess[str]":
        script = f"trap '' {ignored}; exec {words} 7<{shlex.quote(str(told))}"
        return subprocess.run(
            ["sh", "-c", script],
            env=environment(home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    with nothing_left(home, but_hub=True):
        alone, watched = ran(command), ran(f"{shlex.join(RANKSCOPE)} run -- {command}")
    assert alone.returncode == watched.returncode == 0, watched
    assert watched.stdout == alone.stdout
    assert "from the shell" in alone.stdout


WAITS = """
import signal, sys
told = []
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda number, frame: told.append(number))
print("up", flush=True)
while not told:
    signal.pause()
print(signal.Signals(told[0]).name, flush=True)
sys.exit(7)
"""


def test_a_scheduler_s_warning_reaches_the_command(home: Path) -> None:
    """The launcher does not die of it; the command's answer to it is the exit code."""
    number = signal.SIGUSR2
    with (
        nothing_left(home, but_hub=True),
        started(home, "run", "--", sys.executable, "-c", WAITS) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        assert process.wait(120) == 7
        assert process.stdout.read() == f"{number.name}\n"


def test_a_hang_up_that_is_ignored_ends_nothing(home: Path) -> None:
    """What was started with nohup goes on when its terminal goes."""
    program = "import sys; print('up', flush=True); sys.exit(len(sys.stdin.readline()))"
    command = shlex.join([*RANKSCOPE, "run", "--", sys.executable, "-c", program])
    with (
        nothing_left(home, but_hub=True),
        subprocess.Popen(
            ["sh", "-c", f"trap '' HUP; exec {command}"],
            env=environment(home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        os.killpg(process.pid, signal.SIGHUP)
        process.stdin.write("four\n")
        process.stdin.flush()
        assert process.wait(120) == 5
