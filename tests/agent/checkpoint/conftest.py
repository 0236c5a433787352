"""Runs of real ranks that save."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from support.ports import free_port
from support.savingrank import run

TESTS = str(Path(__file__).resolve().parents[2])

TIMEOUT_S = 200.0
"""Far beyond what any run here takes; one that gets there hangs."""

# Forked from a process that has imported torch once: that takes longer than all the rest.
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["support.savingwarm"])


def start_server() -> None:
    """Start that process, which finds ``support`` only in its environment; and with one thread."""
    found = os.pathsep.join(filter(None, [TESTS, os.environ.get("PYTHONPATH")]))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ("PYTHONPATH", found), ("OMP_NUM_THREADS", "1"):
            patch.setenv(name, value)
        forkserver.ensure_running()


class Ranks:
    """Processes of one run."""

    def __init__(self, count: int, told: dict[str, Any]) -> None:
        start_server()
        port = free_port()
        self.processes: list[ForkServerProcess] = []
        self._answers = []
        for rank in range(count):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=run, args=(theirs, rank, count, port, told))
            process.start()
            theirs.close()
            self.processes.append(process)
            self._answers.append(ours)

    def line(self, rank: int) -> Any:
        """What ``rank`` gives back at its end."""
        assert self._answers[rank].poll(TIMEOUT_S), f"rank {rank} hangs"
        return self._answers[rank].recv()

    def lines(self) -> list[Any]:
        return [self.line(rank) for rank in range(len(self.processes))]

    def died(self, rank: int) -> int | None:
        """The exit code of ``rank``, once it has ended."""
        self.processes[rank].join(TIMEOUT_S)
        return self.processes[rank].exitcode

    def end(self) -> None:
        for process in self.processes:
            if process.exitcode is None:
                process.join(10 if process.is_alive() else 0)
            process.kill()
            process.join()
            process.close()
        for answer in self._answers:
            answer.close()


Launch = Callable[..., Ranks]


@pytest.fixture
def ranks() -> Iterator[Launch]:
    """``ranks(count, kind=…, dir=…, steps=…, saves=…)``: see ``support.savingrank``."""
    begun: list[Ranks] = []

    def launch(count: int, **told: Any) -> Ranks:
        begun.append(Ranks(count, {"kind": "ddp", **told, "dir": str(told["dir"])}))
        return begun[-1]

    yield launch
    for one in begun:
        one.end()
