"""Stopped ranks, seen by a real sentinel."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.agent.sentinel import stopped
from support.noderouter import NodeRouter
from support.sentinels import Launcher, make_node_dir, register, sentinel


@pytest.mark.processes
def test_a_stopped_rank_is_told_and_so_is_its_going_on(tmp_path: Path) -> None:
    """SIGSTOP and SIGCONT change the reported state; a stopped rank can still be seen to die."""
    directory = make_node_dir(tmp_path)
    with NodeRouter() as hub, Launcher() as launcher, sentinel(directory, hub.endpoint, hub.key):
        pid = launcher.register(directory, 0)
        hub.wait_for_state(0, "alive")
        os.kill(pid, signal.SIGSTOP)
        hub.wait_for_state(0, "stopped")
        os.kill(pid, signal.SIGCONT)
        hub.wait_for_state(0, "alive")
        os.kill(pid, signal.SIGSTOP)
        hub.wait_for_state(0, "stopped")
        os.kill(pid, signal.SIGKILL)
        assert hub.wait_for_death(0).signal == signal.SIGKILL
        hub.wait_for_state(0, "ended")


@pytest.mark.processes
def test_a_rank_that_was_stopped_when_first_seen_is_told_so(tmp_path: Path) -> None:
    """A sentinel that comes late tells of a stopped rank in its first report of it."""
    directory = make_node_dir(tmp_path)
    with NodeRouter() as hub, Launcher() as launcher:
        os.kill(launcher.register(directory, 0), signal.SIGSTOP)
        with sentinel(directory, hub.endpoint, hub.key):
            hub.wait_for_state(0, "stopped")
            assert hub.reports()[0].processes[0].state == "stopped"


@pytest.mark.processes
@pytest.mark.parametrize("computes", [True, False])
def test_whether_a_rank_computes_or_waits_is_reported(tmp_path: Path, computes: bool) -> None:
    """One that waits has been ready for no time, whatever else the machine does."""
    directory = make_node_dir(tmp_path)
    loop = "while True: pass" if computes else "import time\ntime.sleep(1000)"
    with NodeRouter() as hub, Launcher() as launcher:
        pid = launcher.run(f"print('begun', flush=True)\n{loop}")
        with sentinel(directory, hub.endpoint, hub.key):
            register(directory, pid, 0)

            def newest() -> list[float]:
                return [one.ready_s for report in hub.reports()[-2:] for one in report.processes]

            want = (lambda age_s: age_s > 1.0) if computes else (lambda age_s: age_s == 0.0)
            hub.wait_for(lambda: len(found := newest()) == 2 and all(map(want, found)))


TRACER = """
import ctypes, os, sys
PTRACE_ATTACH, PTRACE_DETACH = 16, 17
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
pid = int(sys.argv[1])
if libc.ptrace(PTRACE_ATTACH, pid, None, None):
    print(os.strerror(ctypes.get_errno()), flush=True)
    sys.exit()
os.waitpid(pid, 0)
print("held", flush=True)
sys.stdin.read()
libc.ptrace(PTRACE_DETACH, pid, None, None)
"""


@pytest.mark.processes
def test_a_rank_held_by_a_real_tracer_is_not_called_stopped(tmp_path: Path) -> None:
    """While its stack is being read from outside a rank is reported as alive."""
    directory = make_node_dir(tmp_path)
    with NodeRouter() as hub, Launcher() as launcher, sentinel(directory, hub.endpoint, hub.key):
        pid = launcher.register(directory, 0)
        hub.wait_for_state(0, "alive")
        tracer = subprocess.Popen(
            [sys.executable, "-c", TRACER, str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert tracer.stdout is not None
            word = tracer.stdout.readline().decode().strip()
            if word != "held":
                pytest.skip(f"a process cannot be traced here: {word}")
            hub.received.clear()
            hub.wait_for(lambda: len(hub.reports()) >= 2)
            assert {p.state for report in hub.reports() for p in report.processes} == {"alive"}
        finally:
            tracer.communicate(timeout=60)
        os.kill(pid, signal.SIGKILL)
        assert hub.wait_for_death(0).signal == signal.SIGKILL


@pytest.mark.parametrize("before", ["alive", "stopped"])
def test_a_tracer_changes_nothing(before: stopped.State) -> None:
    """A rank whose stack is being read (state t) is neither called stopped nor going on."""
    assert stopped.next_state(before, "t") == before


@pytest.mark.parametrize("letter", ["R", "S", "D", "I"])
def test_every_other_letter_is_alive(letter: str) -> None:
    """Running, sleeping and waiting for a disk are all alive."""
    assert stopped.next_state("stopped", letter) == "alive"
    assert stopped.next_state("alive", "T") == "stopped"
