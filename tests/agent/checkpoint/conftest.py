"""Runs of real ranks that save."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.training import environment, free_port

PROGRAM = Path(__file__).parent / "rank.py"
TIMEOUT_S = 120.0

Told = dict[str, Any]


class Ranks:
    """Processes of one run."""

    def __init__(self, count: int, told: Told) -> None:
        port = str(free_port())
        self.processes = [
            subprocess.Popen(
                [sys.executable, str(PROGRAM), json.dumps(told)],
                env=environment(
                    {
                        "RANK": str(rank),
                        "LOCAL_RANK": str(rank),
                        "WORLD_SIZE": str(count),
                        "MASTER_ADDR": "127.0.0.1",
                        "MASTER_PORT": port,
                        "RANKSCOPE": "off",
                    }
                ),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(count)
        ]

    def line(self, rank: int) -> Any:
        """What ``rank`` printed, once it has ended."""
        out, err = self.processes[rank].communicate(timeout=TIMEOUT_S)
        assert self.processes[rank].returncode == 0, err
        return json.loads(out)

    def lines(self) -> list[Any]:
        return [self.line(rank) for rank in range(len(self.processes))]

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                process.communicate()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


Launch = Callable[..., Ranks]


@pytest.fixture
def ranks() -> Iterator[Launch]:
    """``ranks(count, kind=…, dir=…, steps=…, saves=…)``: see ``rank.py`` for the rest."""
    begun: list[Ranks] = []

    def launch(count: int, **told: Any) -> Ranks:
        begun.append(Ranks(count, {"kind": "ddp", **told, "dir": str(told["dir"])}))
        return begun[-1]

    yield launch
    for one in begun:
        one.end()
