"""When a sentinel ends, what it leaves behind, and that there is one of it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from rankscope.agent import nodedir
from rankscope.protocol.messages import RunOver, WhoAreYou
from support.noderouter import NodeRouter
from support.sentinels import (
    EXIT_TIMEOUT_S,
    Launcher,
    make_node_dir,
    register,
    sentinel,
    start_sentinel,
    stop,
)
from support.wire import wait_until

pytestmark = pytest.mark.processes


def test_a_second_sentinel_ends_at_once_and_without_a_word(tmp_path: Path) -> None:
    """Every local rank may start one; only the first stays."""
    directory = make_node_dir(tmp_path)
    with NodeRouter() as hub, sentinel(directory, hub.endpoint, hub.key) as first:
        hub.wait_for(hub.hellos)
        second = start_sentinel(directory, hub.endpoint, hub.key)
        assert second.wait(EXIT_TIMEOUT_S) == 0
        assert stop(second) == ""
        assert first.poll() is None


def test_a_killed_sentinel_does_not_block_the_next_one(tmp_path: Path) -> None:
    """After kill -9 a new one takes over, with a name of its own, and watches the same ranks."""
    directory = make_node_dir(tmp_path)
    with NodeRouter() as hub, Launcher() as launcher:
        pid = launcher.register(directory, 0)
        with sentinel(directory, hub.endpoint, hub.key) as first:
            hub.wait_for_state(0, "alive")
            first.kill()
            first.wait()
            with sentinel(directory, hub.endpoint, hub.key):
                hub.wait_for(lambda: len({hello.node for hello in hub.hellos()}) == 2)
                os.kill(pid, signal.SIGKILL)
                assert hub.wait_for_death(0).signal == signal.SIGKILL


def test_it_ends_after_the_last_rank_and_tidies_up(tmp_path: Path) -> None:
    """With no rank left for the idle time it ends with 0, and the node directory is gone."""
    directory = make_node_dir(tmp_path)
    with NodeRouter() as hub, Launcher() as launcher:
        pid = launcher.register(directory, 0)  # before the sentinel, which does not wait long
        with sentinel(directory, hub.endpoint, hub.key, "--idle-exit-s", "0.5") as process:
            hub.wait_for_state(0, "alive")
            until_s = time.monotonic() + 1.0
            while time.monotonic() < until_s:  # twice the idle time: a live rank keeps it
                hub.pump(0.1)
            assert process.poll() is None
            os.kill(pid, signal.SIGUSR1)
            hub.wait_for_death(0)
            assert process.wait(EXIT_TIMEOUT_S) == 0
            assert not directory.exists()


def test_one_that_came_before_every_rank_waits_and_watches_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started by a launcher it makes the node's folder itself, and outwaits its idle time."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with (
        NodeRouter() as hub,
        Launcher() as launcher,
        sentinel(None, hub.endpoint, hub.key, "--idle-exit-s", "1.5") as process,
    ):
        hub.wait_for(hub.hellos)
        until_s = time.monotonic() + 3.0
        while time.monotonic() < until_s:  # twice the idle time: a hub that answers keeps it
            hub.pump(0.1)
        assert process.poll() is None
        directory = nodedir.make_node_dir(hub.key.run)
        assert directory.is_relative_to(tmp_path)
        pid = launcher.register(directory, 0)
        hub.wait_for_state(0, "alive")
        os.kill(pid, signal.SIGKILL)
        assert hub.wait_for_death(0).signal == signal.SIGKILL
        hub.say(RunOver())
        assert process.wait(EXIT_TIMEOUT_S) == 0
        assert not directory.exists()


def test_with_neither_a_rank_nor_a_hub_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waits for its first rank does not outlive a hub that is gone for good."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with (
        NodeRouter() as hub,
        sentinel(None, hub.endpoint, hub.key, "--idle-exit-s", "1.5") as process,
    ):
        hub.wait_for(hub.hellos)
        hub.away()
        assert process.wait(EXIT_TIMEOUT_S) == 0


def test_it_ends_at_once_when_the_run_is_over(tmp_path: Path) -> None:
    """The launcher's word is enough, whatever the ranks do; the node's folder is removed."""
    directory = make_node_dir(tmp_path)
    with (
        NodeRouter() as hub,
        Launcher() as launcher,
        sentinel(directory, hub.endpoint, hub.key) as process,
    ):
        launcher.register(directory, 0)
        hub.wait_for_state(0, "alive")
        hub.say(RunOver())
        assert process.wait(EXIT_TIMEOUT_S) == 0
        assert not directory.exists()


def test_sigterm_ends_it_in_an_orderly_way(tmp_path: Path) -> None:
    """It ends with 0, and leaves the registrations of live ranks to whoever follows it."""
    directory = make_node_dir(tmp_path)
    with (
        NodeRouter() as hub,
        Launcher() as launcher,
        sentinel(directory, hub.endpoint, hub.key) as process,
    ):
        launcher.register(directory, 0)
        hub.wait_for_state(0, "alive")
        process.terminate()
        assert process.wait(EXIT_TIMEOUT_S) == 0
        assert len(nodedir.read_registrations(directory)) == 1
        assert not nodedir.is_locked(nodedir.sentinel_lock_path(directory))


def test_deaths_while_the_hub_is_away_are_told_when_it_is_back(tmp_path: Path) -> None:
    """Nothing is lost and the order stays; earlier deaths are repeated to the hub that follows."""
    directory = make_node_dir(tmp_path)
    with NodeRouter() as hub, Launcher() as launcher, sentinel(directory, hub.endpoint, hub.key):
        pids = [launcher.register(directory, rank) for rank in range(4)]
        hub.wait_for_state(3, "alive")
        os.kill(pids[0], signal.SIGUSR1)
        hub.wait_for_death(0)
        hub.away()
        os.kill(pids[1], signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{pids[1]}").exists())
        os.kill(pids[2], signal.SIGTERM)
        wait_until(lambda: not Path(f"/proc/{pids[2]}").exists())
        back_s = time.monotonic()
        hub.received.clear()
        hub.back()
        hub.wait_for_death(2)
        told = hub.deaths()
        assert [d.rank for d in told] == [0, 1, 2]
        assert [d.signal for d in told] == [None, signal.SIGKILL, signal.SIGTERM]
        assert all(d.event_t_s <= d.t_s and back_s <= d.t_s for d in told)
        assert told[0].event_t_s < told[1].event_t_s < told[2].event_t_s
        assert hub.hellos()
        numbers = hub.numbers()
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_hub_that_asks_is_told_everything_again(tmp_path: Path) -> None:
    """WHO_ARE_YOU is answered with a hello, the deaths and the state of all ranks."""
    directory = make_node_dir(tmp_path)
    with NodeRouter() as hub, Launcher() as launcher, sentinel(directory, hub.endpoint, hub.key):
        os.kill(launcher.register(directory, 0), signal.SIGUSR1)
        launcher.register(directory, 1)
        hub.wait_for_death(0)
        hub.wait_for_state(1, "alive")
        hub.received.clear()
        hub.say(WhoAreYou(-1))
        hub.wait_for(hub.hellos)
        hub.wait_for_death(0)
        hub.wait_for_state(1, "alive")


def test_it_waits_for_a_hub_that_was_never_there(tmp_path: Path) -> None:
    """Started before its hub it watches, and tells all once the hub comes."""
    directory = make_node_dir(tmp_path)
    with NodeRouter() as hub, Launcher() as launcher:
        hub.away()
        with sentinel(directory, hub.endpoint, hub.key):
            pid = launcher.register(directory, 0)
            # Opened once it has read who has the pid; before that it could only tell of no one.
            last = "schedstat" if Path("/proc/self/schedstat").exists() else "stat"
            wait_until(lambda: f"/proc/{pid}/{last}" in open_files(directory))
            os.kill(pid, signal.SIGKILL)
            hub.back()
            assert hub.wait_for_death(0).signal == signal.SIGKILL


def open_files(directory: Path) -> set[str]:
    """What the sentinel that holds the node's lock has open."""
    lock = str(nodedir.sentinel_lock_path(directory))
    for process in Path("/proc").glob("[0-9]*"):
        try:
            files = {os.readlink(link) for link in (process / "fd").iterdir()}  # noqa: PTH115
        except OSError:
            continue
        if lock in files:
            return files
    return set()


def test_it_does_not_import_torch(tmp_path: Path) -> None:
    """A sentinel beside 8 ranks must not cost a ninth one's memory."""
    code = (
        "import runpy, sys\n"
        "try: runpy.run_module('rankscope.agent.sentinel', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'numpy', 'textual'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"key": b"{}"}, "no agents' key on stdin"),
        ({"endpoint": "nowhere"}, "cannot connect to 'nowhere'"),
        ({"open": True}, "open to other users"),
        ({"missing": True}, "cannot use"),
        ({"no run": True}, "--run"),
        ({"run": "../elsewhere", "missing": "argument"}, "is no run id"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, change: dict[str, object], says: str
) -> None:
    """Whatever it was started with that is wrong, it says so in one line and ends."""
    directory = make_node_dir(tmp_path)
    if "open" in change:
        directory.chmod(0o755)
    node_dir = tmp_path / "none" if "missing" in change else directory
    with NodeRouter() as hub:
        command = [sys.executable, "-m", "rankscope.agent.sentinel"]
        command += ["--endpoint", str(change.get("endpoint", hub.endpoint))]
        if change.get("missing") != "argument":
            command += ["--node-dir", str(node_dir)]
        if "no run" not in change:
            command += ["--run", str(change.get("run", "run"))]
        key = change.get("key")
        done = subprocess.run(
            command,
            input=key if isinstance(key, bytes) else key_bytes(hub),
            capture_output=True,
            timeout=60,
        )
    said = done.stderr.decode()
    assert done.returncode == 2, said
    assert said.count("\n") == 1
    assert says in said


def key_bytes(hub: NodeRouter) -> bytes:
    return msgspec.json.encode(hub.key)


def test_a_rank_of_this_very_process_is_watched_like_any_other(tmp_path: Path) -> None:
    """Reports carry processor time and memory of a rank, and of the node what can be read."""
    directory = make_node_dir(tmp_path)
    with NodeRouter() as hub, sentinel(directory, hub.endpoint, hub.key):
        register(directory, os.getpid(), 0)
        hub.wait_for_state(0, "alive")
        report = hub.reports()[-1]
        assert report.processes[0].cpu_s > 0
        assert report.processes[0].resident_bytes > 1 << 20
        assert report.load_1min is not None
        assert report.memory_available_bytes is not None
        assert report.memory_available_bytes > 0
