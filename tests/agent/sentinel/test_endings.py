"""How ranks ended, seen by a real sentinel that is not their parent."""

import os
import signal
import time
from pathlib import Path

import pytest

from rankscope.agent import nodedir
from rankscope.agent.nodedir import Registration
from rankscope.protocol.procs import start_time_s
from support.noderouter import NodeRouter
from support.sentinels import Launcher, make_node_dir, register, sentinel

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("reap", [True, False], ids=["reaped at once", "left a zombie"])
def test_exit_codes_and_signals_are_told_as_they_were(tmp_path: Path, reap: bool) -> None:
    """Each way to end is reported as that way, whether or not the parent reaps at once."""
    directory = make_node_dir(tmp_path)
    cases: list[tuple[int | None, int | None]] = [(0, None), (1, None), (3, None)]
    cases += [(None, s) for s in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM)]
    with (
        NodeRouter() as hub,
        Launcher(reap=reap) as launcher,
        sentinel(directory, hub.endpoint, hub.key),
    ):
        pids = [
            launcher.register(directory, rank, exit_code=code or 0)
            for rank, (code, _) in enumerate(cases)
        ]
        hub.wait_for_state(len(cases) - 1, "alive")
        for rank, (code, number) in enumerate(cases):
            before_s = time.monotonic()
            os.kill(pids[rank], number or signal.SIGUSR1)
            death = hub.wait_for_death(rank)
            assert (death.exit_code, death.signal) == (code, number)
            assert death.pid == pids[rank]
            assert death.how in ("zombie", "pidfd")
            assert not death.oom_killed
            assert before_s <= death.event_t_s <= death.t_s
        assert len(hub.deaths()) == len(cases)
        assert hub.numbers() == list(range(1, len(hub.numbers()) + 1))


def test_a_rank_that_was_dead_when_first_seen_has_vanished(tmp_path: Path) -> None:
    """A registration without a process is reported once, with nothing claimed about its end."""
    directory = make_node_dir(tmp_path)
    with NodeRouter() as hub, Launcher() as launcher:
        pid = launcher.register(directory, 0)
        os.kill(pid, signal.SIGKILL)
        hub_pid = os.getpid()
        while start_time_s(pid) is not None:
            time.sleep(0.01)
        with sentinel(directory, hub.endpoint, hub.key):
            death = hub.wait_for_death(0)
            assert (death.how, death.exit_code, death.signal) == ("vanished", None, None)
            register(directory, hub_pid, 1)
            hub.wait_for_state(1, "alive")
            assert len(hub.deaths()) == 1


def test_a_reused_pid_is_not_taken_for_the_rank(tmp_path: Path) -> None:
    """A process with the registered pid but another start is a stranger: the rank has vanished."""
    directory = make_node_dir(tmp_path)
    with NodeRouter() as hub, Launcher() as launcher:
        pid = launcher.start()
        started_s = start_time_s(pid)
        assert started_s is not None
        nodedir.register(directory, Registration(pid, started_s - 1.0, 0, 0))
        with sentinel(directory, hub.endpoint, hub.key):
            death = hub.wait_for_death(0)
            assert (death.how, death.pid) == ("vanished", pid)
            os.kill(pid, signal.SIGKILL)
            launcher.register(directory, 1)
            hub.wait_for_state(1, "alive")
            assert len(hub.deaths()) == 1


def test_the_first_to_die_is_told_first(tmp_path: Path) -> None:
    """Beside a launcher that ends all ranks 50 ms after the first death, the order is kept."""
    directory = make_node_dir(tmp_path)
    ranks = range(4)
    with NodeRouter() as hub, Launcher() as launcher, sentinel(directory, hub.endpoint, hub.key):
        for attempt in range(20):
            first = attempt % len(ranks)
            pids = [launcher.register(directory, rank, attempt) for rank in ranks]
            for rank in ranks:
                hub.wait_for_state(rank, "alive", attempt)
            os.kill(pids[first], signal.SIGKILL)
            time.sleep(0.05)  # the launcher's reaction, not a wait for the sentinel
            for rank in ranks:
                if rank != first:
                    os.kill(pids[rank], signal.SIGTERM)
            for rank in ranks:
                hub.wait_for_death(rank, attempt)
            told = [death for death in hub.deaths() if death.attempt == attempt]
            assert [(d.rank, d.signal) for d in told[:1]] == [(first, signal.SIGKILL)]
            assert [d.signal for d in told[1:]] == [signal.SIGTERM] * 3
            times = [d.event_t_s for d in told]
            assert times == sorted(times)
            assert len(set(times)) == len(times)


def test_a_later_attempt_is_watched_too(tmp_path: Path) -> None:
    """Ranks of a restarted run register anew and are told from those of the attempt before."""
    directory = make_node_dir(tmp_path)
    with NodeRouter() as hub, Launcher() as launcher, sentinel(directory, hub.endpoint, hub.key):
        os.kill(launcher.register(directory, 0, attempt=0, exit_code=1), signal.SIGUSR1)
        hub.wait_for_death(0, attempt=0)
        pid = launcher.register(directory, 0, attempt=1)
        hub.wait_for_state(0, "alive", attempt=1)
        os.kill(pid, signal.SIGKILL)
        assert hub.wait_for_death(0, attempt=1).signal == signal.SIGKILL
        newest = hub.reports()[-1]
        assert {p.attempt for p in newest.processes} == {1}
