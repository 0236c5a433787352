"""``rankscope run`` from outside: the command is untouched, the hub is kept alive."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rankscope.protocol.rundir import RunDirectory, RunInfo
from support.outside import nothing_left, rankscope, started
from support.runs import RANKSCOPE, belonging_to, environment, wait_until
from support.terminal import Terminal

pytestmark = pytest.mark.processes

PYTHON = (sys.executable, "-c")

# Says that it is up, then tells each signal it gets, and ends at a line on its stdin or `ends_at`.
TELLTALE = """
import signal, sys, time
ends_at = int(sys.argv[1])
def tell(number, frame):
    print(signal.Signals(number).name, flush=True)
    if number == ends_at:
        raise SystemExit(7)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, tell)
print("up", flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def latest(home: Path) -> RunDirectory:
    return RunDirectory((home / "runs" / "latest").resolve())


def live_hub(home: Path) -> RunInfo:
    """run.json once a hub has written itself into it."""

    def look() -> RunInfo | None:
        if not (home / "runs" / "latest" / "run.json").exists():
            return None
        info = latest(home).read_info()
        return info if info.hub is not None else None

    return wait_until(look, "a hub")


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 143),
    ],
)
def test_the_exit_code_is_the_commands_own(home: Path, program: str, code: int) -> None:
    """Passed through, 128+n for a signal; the run's final state says the same."""
    with nothing_left(home, but_hub=True):
        ran = rankscope(home, "run", "--", *PYTHON, program)
        assert ran.code == code, ran
        assert ran.out == ""
        status = json.loads(rankscope(home, "status", "--json").out)
    assert status["exit_code"] == code
    assert status["state"] == ("finished" if code == 0 else "failed")
    assert rankscope(home, "check").code == (0 if code == 0 else 1)


def test_the_commands_streams_are_untouched(home: Path) -> None:
    """Bytes go through as they are; what we say goes to stderr only."""
    program = (
        "import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data[::-1]);"
        "sys.stderr.write('own words')"
    )
    result = subprocess.run(
        [*RANKSCOPE, "run", "--", *PYTHON, program],
        env=environment(home),
        input=b"\x00\xff\r\nabc",
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert result.stdout == b"cba\n\r\xff\x00"
    assert b"own words" in result.stderr


def test_the_command_knows_where_its_hub_is(home: Path) -> None:
    """The environment names the run, the endpoint and the agents' key file; options after the
    command's name are its own."""
    program = "import os, sys, json; print(json.dumps([dict(os.environ), sys.argv]))"
    ran = rankscope(home, "run", "--name", "mine", "--", *PYTHON, program, "--name", "its", "--")
    environ, arguments = json.loads(ran.out)
    assert arguments[1:] == ["--name", "its", "--"]
    info = latest(home).read_info()
    assert environ["RANKSCOPE_RUN"] == info.run
    assert environ["RANKSCOPE_ENDPOINT"] == info.endpoint
    assert environ["RANKSCOPE_NAME"] == "mine"
    assert Path(environ["RANKSCOPE_AGENT_KEY"]) == latest(home).key_path("agent")


def test_a_killed_hub_is_back_on_its_endpoint_and_the_command_did_not_notice(home: Path) -> None:
    """kill -9, twice: another pid, the same endpoint, status answers, the command ends well."""
    program = "import sys; print('up', flush=True); sys.exit(len(sys.stdin.readline()))"
    with nothing_left(home, but_hub=True):
        process = subprocess.Popen(
            [*RANKSCOPE, "run", "--", *PYTHON, program],
            env=environment(home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            for _ in range(2):
                before = live_hub(home)
                assert before.hub is not None
                pid = before.hub.pid
                os.kill(pid, signal.SIGKILL)

                def back(pid: int = pid) -> bool:
                    hub = latest(home).read_info().hub
                    return hub is not None and hub.pid != pid

                wait_until(back, "another hub")
                assert latest(home).read_info().endpoint == before.endpoint
                assert rankscope(home, "status", "--json").code == 0
            process.stdin.write("four\n")
            process.stdin.flush()
            assert process.wait(120) == 5


def test_a_hub_that_cannot_come_back_is_told_in_words(home: Path) -> None:
    """Its own key is gone: a few tries, one line, and the command goes on to its own end."""
    with (
        nothing_left(home, but_hub=True),
        started(home, "run", "--", *PYTHON, TELLTALE, str(int(signal.SIGTERM))) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "up\n"
        info = live_hub(home)
        assert info.hub is not None
        latest(home).key_path("hub").unlink()
        os.kill(info.hub.pid, signal.SIGKILL)
        words = [process.stderr.readline() for _ in range(2)]
        assert "the hub keeps dying" in words[1], words
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 7
        last = process.stderr.readlines()
    assert len(last) == 1
    assert "unwatched" in last[0]


@pytest.mark.parametrize("stopped", ["hub", "agent.sentinel"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_is_stopped_does_not_outlive_its_run(home: Path, number: int, stopped: str) -> None:
    """Hub and sentinel are let go on to hear of the end, and it is known: exit code, list."""
    with (
        nothing_left(home),
        started(home, "run", "--", *PYTHON, TELLTALE, str(int(number))) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "up\n"
        live_hub(home)
        ours = psutil.Process(process.pid).children()
        (found,) = [one for one in ours if f"rankscope.{stopped}" in one.cmdline()]
        found.suspend()
        wait_until(lambda: found.status() == psutil.STATUS_STOPPED, "a stopped process")
        process.send_signal(number)
        assert process.wait(120) == 7
        last = process.stderr.readlines()[-1]
        assert "exit code 7" in last
        assert "unwatched" not in last
        (row,) = json.loads(rankscope(home, "ls", "--json").out)["runs"]
        assert (row["state"], row["exit_code"]) == ("ended", 7)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_the_launcher_reaches_the_command_once(
    home: Path, number: signal.Signals
) -> None:
    """And its answer to it is the exit code."""
    with (
        nothing_left(home, but_hub=True),
        started(home, "run", "--", *PYTHON, TELLTALE, str(int(number))) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        assert process.wait(120) == 7
        assert process.stdout.read() == f"{number.name}\n"


def test_a_command_that_ignores_sigterm_is_let_be(home: Path) -> None:
    """The launcher waits for it as a shell would; the second signal is passed on too."""
    with (
        nothing_left(home, but_hub=True),
        started(home, "run", "--", *PYTHON, TELLTALE, str(int(signal.SIGHUP))) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            assert process.stdout.readline() == "SIGTERM\n"
        assert process.poll() is None
        process.send_signal(signal.SIGHUP)
        assert process.wait(120) == 7


def test_ctrl_c_on_a_terminal_reaches_the_command_once(home: Path) -> None:
    """From the terminal itself; the launcher adds nothing and waits for the command's end."""
    command = [*RANKSCOPE, "run", "--", *PYTHON, TELLTALE, str(int(signal.SIGTERM))]
    with nothing_left(home, but_hub=True), Terminal(command, env=environment(home)) as terminal:
        terminal.wait_for("up")
        terminal.press("ctrl+c")
        terminal.wait_for("SIGINT")
        assert psutil.Process(terminal.process.pid).children()
        terminal.signal(signal.SIGTERM)
        assert terminal.exit_code() == 7
        assert terminal.text().count("SIGINT") == 1
        assert "ended by SIGTERM" in " ".join(terminal.text().split())  # SIGINT was not heeded


@pytest.mark.parametrize("leader", [True, False])
def test_a_lost_terminal_reaches_the_command_once(home: Path, tmp_path: Path, leader: bool) -> None:
    """Whether the launcher leads the session and has to pass it on, or a shell told the group."""
    told = tmp_path / "told"
    program = TELLTALE.replace('print("up"', f'sys.stdout = open({str(told)!r}, "w"); print("up"')
    command = [*RANKSCOPE, "run", "--", *PYTHON, program, str(int(signal.SIGTERM))]
    if not leader:
        command = ["sh", "-c", f"{shlex.join(command)}; true"]
    with Terminal(command, env=environment(home)) as terminal:
        wait_until(lambda: told.exists() and told.read_text() == "up\n", "the command")
        terminal.hang_up()
        wait_until(lambda: "SIGHUP" in told.read_text(), "SIGHUP")
        (trainer,) = (p for p in belonging_to(home) if is_command(p, program))
        trainer.terminate()
        wait_until(lambda: not trainer.is_running(), "its end")
        assert told.read_text().count("SIGHUP") == 1
        wait_until(lambda: terminal.process.poll() is not None, "the launcher's end")
    with nothing_left(home, but_hub=True):
        pass


def is_command(process: psutil.Process, program: str) -> bool:
    """Whether it is the command itself: not its launcher, and not a shell that has just ended."""
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        return program in words and "run" not in words
    return False


def test_a_killed_launcher_leaves_the_command_alone(home: Path) -> None:
    """kill -9 of the launcher: training goes on, the hub too."""
    program = "import time; print('up', flush=True); time.sleep(600)"
    with started(home, "run", "--", *PYTHON, program) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        children = psutil.Process(process.pid).children()
        try:
            process.kill()
            process.wait(60)
            assert rankscope(home, "status", "--json").code == 0
            assert all(child.is_running() for child in children)
        finally:
            for child in children:
                with contextlib.suppress(psutil.Error):
                    child.kill()


def test_an_ended_run_is_answered_by_a_hub_that_ends_with_the_asker(home: Path) -> None:
    """The recording is served for one command, and nothing is left running, killed or not."""
    rankscope(home, "run", "--", *PYTHON, "pass")
    hub = latest(home).read_info().hub
    assert hub is not None
    wait_until(lambda: not psutil.pid_exists(hub.pid), "the hub's own end")
    with nothing_left(home):
        status = json.loads(rankscope(home, "status", "--json").out)
        assert status["state"] == "finished"
        assert rankscope(home, "ranks").code == 0
        assert rankscope(home, "incidents").code == 0
    ls = json.loads(rankscope(home, "ls", "--json").out)
    assert [run["state"] for run in ls["runs"]] == ["ended"]


def test_output_to_a_reader_that_went_away_is_no_error(home: Path) -> None:
    """`rankscope ls | head -0` says nothing on stderr."""
    process = subprocess.Popen(
        [*RANKSCOPE, "--help"],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.wait(120)
        assert process.stderr.read() == b""


ORPHANER = """
import json, os, pathlib, shutil, signal, sys, time
home = pathlib.Path(os.environ["RANKSCOPE_HOME"], "runs", os.environ["RANKSCOPE_RUN"])
hub = json.loads((home / "run.json").read_text())["hub"]["pid"]
shutil.rmtree(home)
os.kill(hub, signal.SIGKILL)
time.sleep(1.5)
sys.exit(7)
"""


def test_a_run_directory_that_vanishes_with_its_hub_costs_the_command_nothing(home: Path) -> None:
    """No hub can be started any more: the command goes on to its own end and its own exit code."""
    with (
        nothing_left(home),
        started(home, "run", "--", *PYTHON, ORPHANER) as process,
    ):
        out, error = process.communicate(timeout=120)
    assert process.returncode == 7, error
    assert "Traceback" not in out + error
    assert "bug" not in error


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_not_change_the_exit_code(home: Path, closed: str) -> None:
    """As cron and daemons start things."""
    command = f'exec "$0" run -- sh -c "exit 5" {closed}'
    with nothing_left(home, but_hub=True):
        ended = subprocess.run(
            ["sh", "-c", command, *RANKSCOPE], env=environment(home), timeout=120, check=False
        )
    assert ended.returncode == 5
