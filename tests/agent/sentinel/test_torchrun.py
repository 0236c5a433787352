"""Beside the real torchrun, which ends all workers as soon as one dies and reaps them."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from rankscope.agent import nodedir
from support.noderouter import NodeRouter
from support.sentinels import EXIT_TIMEOUT_S, make_node_dir, sentinel
from support.wire import wait_until

WORKER = """
import os, sys, time
from pathlib import Path
from rankscope.agent import nodedir
from rankscope.protocol.procs import start_time_s

nodedir.register(
    Path(sys.argv[1]),
    nodedir.Registration(
        os.getpid(),
        start_time_s(os.getpid()),
        int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
        int(os.environ["RANK"]),
    ),
)
time.sleep(600)
"""
RANKS = range(4)


@pytest.mark.processes
def test_the_killed_rank_is_told_before_those_that_torchrun_ends(tmp_path: Path) -> None:
    """In the first attempt rank 2 is killed, in the restarted one rank 0: each is told first."""
    directory = make_node_dir(tmp_path)
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts=1"]
    command += [f"--nproc-per-node={len(RANKS)}", str(script), str(directory)]
    with (
        NodeRouter() as hub,
        sentinel(directory, hub.endpoint, hub.key),
        (tmp_path / "torchrun.log").open("wb") as log,
    ):
        torchrun = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TORCHELASTIC_ENABLE_FILE_TIMER": "0"},
        )
        try:
            for attempt, victim in ((0, 2), (1, 0)):
                all_there = partial(all_registered, directory, attempt)
                wait_until(all_there, "the ranks' registrations", 60.0)
                for rank in RANKS:
                    hub.wait_for_state(rank, "alive", attempt)
                pid = next(
                    r.pid
                    for r in nodedir.read_registrations(directory)
                    if (r.attempt, r.rank) == (attempt, victim)
                )
                os.kill(pid, signal.SIGKILL)
                for rank in RANKS:
                    hub.wait_for_death(rank, attempt)
                told = [d for d in hub.deaths() if d.attempt == attempt]
                assert (told[0].rank, told[0].signal) == (victim, signal.SIGKILL)
                assert [d.signal for d in told[1:]] == [signal.SIGTERM] * 3
            assert torchrun.wait(EXIT_TIMEOUT_S) == 1
        finally:
            torchrun.terminate()
            torchrun.wait(EXIT_TIMEOUT_S)


def all_registered(directory: Path, attempt: int) -> bool:
    found = {r.rank for r in nodedir.read_registrations(directory) if r.attempt == attempt}
    return found == set(RANKS)
