"""Stopped ranks, seen by a real sentinel."""

import os
import signal
from pathlib import Path

import pytest

from rankscope.agent.sentinel import stopped
from support.noderouter import NodeRouter
from support.sentinels import Launcher, make_node_dir, sentinel


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


@pytest.mark.parametrize("before", ["alive", "stopped"])
def test_a_tracer_changes_nothing(before: stopped.State) -> None:
    """A rank whose stack is being read (state t) is neither called stopped nor going on."""
    assert stopped.next_state(before, "t") == before


@pytest.mark.parametrize("letter", ["R", "S", "D", "I"])
def test_every_other_letter_is_alive(letter: str) -> None:
    """Running, sleeping and waiting for a disk are all alive."""
    assert stopped.next_state("stopped", letter) == "alive"
    assert stopped.next_state("alive", "T") == "stopped"
