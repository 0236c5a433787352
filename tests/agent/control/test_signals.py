"""A scheduler's warning signal, sent to real processes: save and stop, never in place of death."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from torch._C._distributed_c10d import HashStore

from rankscope.agent.control.control import Control
from rankscope.agent.control.signals import SAME_S, Signals, numbers
from rankscope.protocol import checkpoints
from support.listener import Listener
from support.ports import free_port
from support.sentinels import no_sentinel
from support.training import environment
from support.wire import wait_until

PROGRAM = Path(__file__).parents[1] / "programs" / "warned.py"
TIMEOUT_S = 200.0


class Ranks:
    """The processes of one run."""

    def __init__(self, environ: dict[str, str], home: Path, count: int = 1, **options: Any) -> None:
        port, size = str(free_port()), str(count)
        environ = environment(environ) | {"MASTER_PORT": port, "WORLD_SIZE": size}
        told = json.dumps({"dir": str(home / "saved"), "ranks": count, **options})
        self.processes: list[subprocess.Popen[str]] = []
        for rank in range(count):
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, str(PROGRAM), told],
                    env=environ | {"RANK": str(rank)},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    process_group=self.processes[0].pid if self.processes else 0,
                )
            )

    def line(self, rank: int = 0) -> str:
        out = self.processes[rank].stdout
        assert out is not None
        return out.readline().strip()

    def says(self, what: str) -> None:
        """Read what the only rank says of itself, up to a line with ``what``."""
        err = self.processes[0].stderr
        assert err is not None
        while what not in (line := err.readline()):
            assert line, f"it has ended and not said: {what}"

    def ended(self, rank: int = 0) -> tuple[int, str, str]:
        """Its exit code, and the rest of what it has printed."""
        out, err = self.processes[rank].communicate(timeout=TIMEOUT_S)
        return self.processes[rank].returncode, out, err


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Leads agents to an end that listens and never answers; no sentinel is started."""
    name = f"run-{os.getpid()}-{tmp_path.name}"[:60]
    with Listener(tmp_path / "hub", run=name) as hub, no_sentinel(name) as temporary:
        yield {**hub.environ, "TMPDIR": str(temporary)}


@contextmanager
def running(*arguments: Any, **options: Any) -> Iterator[Ranks]:
    ranks = Ranks(*arguments, **options)
    try:
        yield ranks
    finally:
        for process in ranks.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.mark.processes
@pytest.mark.timeout(600)
def test_a_signal_to_all_ranks_saves_and_stops_all_after_one_step(
    environ: dict[str, str], tmp_path: Path
) -> None:
    """One request, without a hub; the handler that was there before is called as ever."""
    with running(environ, tmp_path, 2, handler=True) as ranks:
        assert [ranks.line(rank) for rank in range(2)] == ["trains", "trains"]
        os.killpg(ranks.processes[0].pid, signal.SIGUSR1)  # all of them at once
        told = []
        for rank in range(2):
            code, out, err = ranks.ended(rank)
            assert code == 0, err
            told.append(json.loads(out))
    assert told[0]["step"] == told[1]["step"]
    assert [one["handled"] for one in told] == [[signal.SIGUSR1]] * 2
    (found,), _ = checkpoints.find(tmp_path / "saved")
    assert found.step == told[0]["step"]
    assert checkpoints.verify(tmp_path / "saved" / found.name).state == "complete"


@pytest.mark.processes
@pytest.mark.timeout(600)
def test_a_signal_acts_as_ever_when_no_boundary_comes_or_a_second_one_does(
    environ: dict[str, str], tmp_path: Path
) -> None:
    """The process dies of it, though its training thread is stuck."""
    with (
        running(environ, tmp_path / "one", stuck_at=6) as patient,
        running(environ, tmp_path / "two", stuck_at=6) as hasty,
    ):
        for ranks in (patient, hasty):
            assert [ranks.line(), ranks.line()] == ["trains", "stuck"]
            ranks.processes[0].send_signal(signal.SIGUSR1)
        hasty.says("'nonsense' is no signal")
        hasty.says("asked to save and stop")
        time.sleep(3 * SAME_S)  # what comes sooner is the same signal, passed on twice
        hasty.processes[0].send_signal(signal.SIGUSR1)
        code, _, err = hasty.ended()
        assert code == -signal.SIGUSR1, err
        assert "SIGUSR1 takes effect: a second one came" in err
        code, _, err = patient.ended()
        assert code == -signal.SIGUSR1, err
        assert "SIGUSR1 takes effect: no boundary" in err


@pytest.mark.processes
def test_a_forked_worker_does_not_die_of_a_signal_that_is_meant_for_the_rank() -> None:
    """It does nothing there, and nothing is asked of the ranks because of it."""
    control = Control(0, "forked", lambda: (0, 1), HashStore)
    signals = Signals((signal.SIGUSR1,), control)
    signals.install()
    try:
        child = os.fork()
        if child == 0:
            signals.abandon()
            os.kill(os.getpid(), signal.SIGUSR1)
            os._exit(7)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
    finally:
        signals.uninstall()
        control.close("has ended")
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    assert not control.turns.wants


def by_itself(send: Callable[[], None]) -> None:
    send()


def in_an_event_loop(send: Callable[[], None]) -> None:
    """Which handles signals of its own."""

    async def loop() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, print)
        send()

    asyncio.run(loop())


def after_an_event_loop(send: Callable[[], None]) -> None:
    in_an_event_loop(lambda: None)
    send()


@pytest.mark.parametrize("way", [by_itself, in_an_event_loop, after_an_event_loop])
def test_a_signal_is_heard_whatever_else_hears_of_signals(
    way: Callable[[Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, and so is the next one."""
    same_s = 0.1
    monkeypatch.setattr("rankscope.agent.control.signals.SAME_S", same_s)
    handled: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: handled.append(number))
    control = Control(0, "loop", lambda: (0, 1), HashStore)
    signals = Signals((signal.SIGUSR1,), control)
    signals.install()
    try:
        for asked in (1, 2):
            control.turns.wants.clear()
            signals._asked = False
            way(lambda: signal.raise_signal(signal.SIGUSR1))
            wait_until(lambda: control.turns.wants, "the request")
            assert len(handled) == asked
            time.sleep(2 * same_s)  # what comes sooner is the same signal
            assert len(control.turns.wants) == 1
    finally:
        signals.uninstall()
        control.close("has ended")
        signal.signal(signal.SIGUSR1, before)
    assert signal.set_wakeup_fd(-1) == -1


def test_what_is_no_signal_is_left_out() -> None:
    """In words, and nothing is raised."""
    assert numbers(None) == ()
    assert numbers(signal.SIGUSR1) == (signal.SIGUSR1,)
    both = [signal.SIGUSR1, int(signal.SIGTERM), signal.SIGUSR1]
    assert numbers(both) == (signal.SIGUSR1, signal.SIGTERM)
    assert numbers(["SIGUSR1", 4711, signal.SIGKILL, None, 3.5]) == ()
    assert numbers("SIGUSR1") == ()
