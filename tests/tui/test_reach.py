"""From a run to a hub that answers; and what the machine offers."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from rankscope.protocol import messages as m
from rankscope.protocol.shapes import Finding, Incident, Overview, Status
from rankscope.tui import reach
from rankscope.tui.feed.client import NOBODY_PATIENCE_S, HubClient
from rankscope.tui.feed.poller import Poller, Snapshot
from rankscope.tui.runs import listed
from rankscope.tui.words.nohub import no_hub
from rankscope.tui.words.runs import verdict
from support.outside import nothing_left, rankscope, refused
from support.runs import RANKSCOPE, environment, wait_until
from support.terminal import Terminal
from support.wire import PATIENCE_S, Hub, hub_process, new_run

pytestmark = pytest.mark.processes

DEAD = Finding("rank-dead", "critical", [1], [0], 4, 1.0, "rank 1 died: SIGKILL", [], "")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def end(hub: Hub, exit_code: int) -> None:
    """Let the run end, and its hub with it."""
    with HubClient(hub.endpoint, hub.directory.read_key("agent")) as launcher:
        launcher.send(m.RunEnd(exit_code))
    hub.terminate()


def test_an_asker_that_is_killed_leaves_no_hub_behind(home: Path) -> None:
    """kill -9 of who had a recording served: the serving hub ends by itself."""
    program = (
        "import sys, time; from pathlib import Path; from rankscope.tui import reach;"
        "from rankscope.protocol.rundir import RunDirectory;"
        "client = reach.connect(RunDirectory(Path(sys.argv[1])));"
        "print(client.ask('status').body.state, flush=True); time.sleep(600)"
    )
    with hub_process(home) as hub:
        end(hub, 0)
        with nothing_left(home):
            asker = subprocess.Popen(
                [sys.executable, "-c", program, str(hub.directory.path)],
                env=environment(home),
                stdout=subprocess.PIPE,
                text=True,
            )
            with asker:
                assert asker.stdout is not None
                assert asker.stdout.readline() == "finished\n"
                asker.kill()


def test_a_run_that_has_just_begun_is_waited_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory is there a moment before its hub: that is no run without one."""
    monkeypatch.setattr(reach, "START_S", PATIENCE_S)
    hub = Hub(new_run(home), ())
    begun: list[HubClient] = []
    asker = threading.Thread(target=lambda: begun.append(reach.connect(hub.directory, "viewer")))
    asker.start()
    try:
        hub.start()
        asker.join(PATIENCE_S)
        (client,) = begun
        assert client.run_words == str(hub.directory.path)  # commands it is told name this run
        with client:
            body = client.ask("status", timeout_s=PATIENCE_S).body
        assert isinstance(body, Status)
        assert body.run == hub.directory.run
    finally:
        asker.join(PATIENCE_S)
        hub.terminate()


def test_a_screen_goes_from_live_to_recording_and_back(home: Path) -> None:
    """When the hub ends the same screen shows its recording; when it lives again, that."""
    newest: list[Snapshot] = []

    def shows(replay: bool) -> bool:
        return bool(newest) and newest[-1].link == "up" and newest[-1].replay is replay

    with hub_process(home) as hub:
        poller = Poller(lambda: reach.connect(hub.directory), 0.05, newest.append)
        poller.start()
        try:
            wait_until(lambda: shows(replay=False), "the live hub")
            hub.terminate()
            wait_until(lambda: shows(replay=True), "the recording")
            hub.start()
            wait_until(lambda: shows(replay=False), "the live hub again")
        finally:
            poller.stop()


def test_a_stopped_hub_is_told(home: Path) -> None:
    """It takes the connection (the kernel does) and says nothing: exit 4, and what helps."""
    with hub_process(home) as hub:
        assert hub.process is not None
        hub.process.send_signal(signal.SIGSTOP)
        try:
            pid = hub.process.pid
            refused(rankscope(home, "status"), 4, "is stopped", f"kill -CONT {pid}")
            opened = Incident("rank-dead/0/1/4", "opened", 1.0, 0, DEAD)
            hub.directory.incidents.write_bytes(msgspec.json.encode(opened) + b"\n")
            for command in ("status", "check"):
                told = "last known: RANK-DEAD rank 1 died"
                refused(rankscope(home, command), 4, f"kill -CONT {pid}", told)
            (row,) = listed(home / "runs")
            assert row.hub_stopped == pid
            words = verdict(row).word
            assert f"kill -CONT {pid}" in words
            assert "last known: rank 1 died" in words
        finally:
            hub.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("ends", ["in order", "killed", "killed while it is asked"])
def test_a_hub_that_ends_before_it_answers_leaves_its_recording_to_answer(
    home: Path, ends: str
) -> None:
    """Whoever looked at the run just then is told what was known, and not that nobody listens."""
    with hub_process(home) as hub, reach.connect_once(hub.directory) as client:
        assert isinstance(client.ask("status", timeout_s=PATIENCE_S).body, Status)
        assert not client.replay
        assert hub.process is not None
        if ends == "in order":
            end(hub, 0)
        elif ends == "killed":
            hub.kill()
        else:
            hub.process.send_signal(signal.SIGSTOP)
            threading.Timer(0.5, hub.kill).start()
        for view in ("status", "overview"):
            body = client.ask(view, timeout_s=PATIENCE_S).body
            assert isinstance(body, Status | Overview)
            assert body.state == ("finished" if ends == "in order" else "starting")
        assert client.replay
        again = client.ask("status", timeout_s=PATIENCE_S).body
        assert isinstance(again, Status)
        assert (no_hub(again) is None) == (ends == "in order")


def test_a_hub_that_is_started_again_answers_who_asked_the_one_before(home: Path) -> None:
    """Also where that took longer than a client waits for it to come back."""
    with hub_process(home) as hub, reach.connect_once(hub.directory) as client:
        assert isinstance(client.ask("status", timeout_s=PATIENCE_S).body, Status)
        hub.kill()
        later = threading.Timer(NOBODY_PATIENCE_S + 0.5, hub.start)
        later.start()
        try:
            body = client.ask("status", timeout_s=PATIENCE_S).body
            assert isinstance(body, Status)
        finally:
            later.join()


def test_a_person_is_asked_which_of_several_live_runs(home: Path) -> None:
    """On a terminal; a number chooses."""
    with hub_process(home, run="run-1"), hub_process(home, run="run-2"):
        with Terminal([*RANKSCOPE, "status"], env=environment(home)) as terminal:
            text = terminal.wait_for("2 runs are live", "run-1", "run-2")
            number = next(line.split()[0] for line in text.splitlines() if "run-1" in line)
            terminal.press(number, "enter")
            assert terminal.exit_code() == 0
            terminal.wait_for("waiting for the first step")
        with Terminal([*RANKSCOPE, "status"], env=environment(home)) as terminal:
            terminal.wait_for("Which one?")
            terminal.press("7", "enter")
            assert terminal.exit_code() == 2


@pytest.mark.parametrize(
    ("env", "colour"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_only_where_it_is_wanted(home: Path, env: dict[str, str], colour: bool) -> None:
    """On a terminal, unless NO_COLOR or a dumb one; never in a pipe."""
    with hub_process(home):
        with Terminal([*RANKSCOPE, "status"], env={**environment(home), **env}) as terminal:
            assert terminal.exit_code() == 0
        assert (b"\x1b[" in terminal.raw) is colour
        assert "\x1b" not in rankscope(home, "status").out


def test_a_terminal_that_cannot_show_glyphs_gets_ascii(home: Path) -> None:
    """In a locale that is not UTF-8."""
    with hub_process(home):
        ran = rankscope(home, "status", env={"LC_ALL": "C"})
    assert ran.code == 0
    assert ran.out.isascii(), ran.out


def test_top_without_a_terminal_is_status(home: Path) -> None:
    """One shot of text, no escapes, exit 0."""
    with hub_process(home):
        ran = rankscope(home, "top")
        assert (ran.code, ran.err) == (0, "")
        assert "waiting for the first step" in ran.out
        assert "\x1b" not in ran.out


def test_a_remote_key_is_enough(home: Path, tmp_path: Path) -> None:
    """With an endpoint and a key file no run directory is needed."""
    with hub_process(home) as hub:
        key = tmp_path / "key.json"
        key.write_bytes(hub.directory.key_path("viewer").read_bytes())
        key.chmod(0o600)
        elsewhere = tmp_path / "elsewhere"
        ran = rankscope(
            elsewhere, "status", "--endpoint", hub.endpoint, "--key", str(key), "--json"
        )
    assert json.loads(ran.out)["run"] == "run-1"
    assert not elsewhere.exists()


def test_the_doctor_looks_at_everything(home: Path) -> None:
    """As JSON: each check with its finding; what is essential works here."""
    with nothing_left(home):
        ran = rankscope(home, "doctor", "--json")
    checks = {check["name"]: check for check in json.loads(ran.out)["checks"]}
    assert ran.code == 0, checks
    for name in ("python", "rankscope", "run directories", "loopback", "process ends", "torch"):
        assert checks[name]["works"], checks[name]
    assert all(check["works"] or check["do"] for check in checks.values())


def test_the_doctor_finds_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    """Exit 1, and what to do."""
    home = tmp_path / "file"
    home.write_text("")
    ran = rankscope(home, "doctor")
    assert ran.code == 1
    assert "set RANKSCOPE_HOME" in ran.out


@pytest.mark.parametrize("command", ["stop", "checkpoint"])
def test_a_command_to_a_run_that_is_over_says_so(home: Path, command: str) -> None:
    """And not that a key would lack."""
    with hub_process(home) as hub:
        end(hub, 0)
        with nothing_left(home):
            refused(rankscope(home, command), 3, "is over", "rankscope ls")
