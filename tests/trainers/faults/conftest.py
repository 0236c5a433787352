"""Small real runs with a fault in them, seen from outside and by plain hooks."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.ports import free_port
from support.training import environment

SERVER = Path(__file__).parent / "ranks" / "server.py"
STEP = 3
"""The step of every fault here; a run has five."""

TEXT = "The rank that waits least is the one that is late. "
SMALL = ("--layers", "2", "--dim", "16", "--heads", "2", "--seq-len", "16", "--batch-size", "2")
SHORT = (*SMALL, "--steps", "5", "--attach", "none", "--log-every", "100")


@dataclass(frozen=True)
class Run:
    """How a run with a fault went."""

    truth: list[dict[str, Any]]
    """What the ranks said of their faults."""
    ended: list[int]
    """The steps with a fault in them that were over, as the ranks said then."""
    ranks: list[dict[str, Any]]
    """For each rank: ``code`` (None if it was stuck, -n for signal n), ``state``, ``silent``,
    ``stack``, ``output``, ``steps``,
    ``collectives`` (all of them) and ``calls`` (those that Python made)."""

    def place(self, rank: int, function: str) -> str:
        """``file:line`` of the frame of ``function``: where the rank is stuck, or where it raised.

        Empty for a rank that was aborted, of which nobody knows.
        """
        ended = self.ranks[rank]["code"] is not None
        text, between = (
            (self.ranks[rank]["output"], ", in ") if ended else (self.stack(rank), " in ")
        )
        for line in text.splitlines():
            if line.endswith(f"{between}{function}"):
                file, number = line.strip().removeprefix('File "').split('", line ')
                return f"{Path(file).name}:{number.removesuffix(between + function)}"
        assert ended, (function, text)
        return ""

    def stack(self, rank: int) -> str:
        return str(self.ranks[rank]["stack"])

    def functions(self, rank: int) -> list[str]:
        """The functions of the stuck rank's stack, innermost first."""
        lines = self.stack(rank).splitlines()
        return [line.rpartition(" in ")[2] for line in lines if line.startswith("  File")]

    def pending(self, rank: int) -> str:
        """The collective the stuck rank waits in."""
        name, *_, over = self.ranks[rank]["collectives"][-1]
        assert not over, self.ranks[rank]["collectives"][-3:]
        return str(name)

    def first_difference(self) -> tuple[Any, Any]:
        """The first call of a collective that is not the same on both ranks, as each has it."""
        zero, one = (self.ranks[rank]["calls"] for rank in (0, 1))
        return next((a, b) for a, b in zip(zero, one, strict=False) if a != b)

    def steps(self, rank: int, key: str) -> list[Any]:
        return [step[key] for step in self.ranks[rank]["steps"]]


Hurt = Callable[..., Run]


@pytest.fixture(scope="session")
def hurt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hurt]:
    """``hurt(trainer, fault, *options)``: the run of two ranks with that fault, done once.

    ``until={rank: function}``: until each of them is in that function, or has ``called`` a
    collective in it, instead of to its end.
    """
    home = tmp_path_factory.mktemp("hurt")
    text = home / "text.txt"
    text.write_text(TEXT * 200)
    known: dict[tuple[Any, ...], Run] = {}
    with subprocess.Popen(
        [sys.executable, str(SERVER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment({"RANKSCOPE_HOME": str(home)}),
    ) as server:

        def run(
            trainer: str, fault: str, *options: str, until: dict[int, str] | None = None
        ) -> Run:
            key = (trainer, fault, options)
            if key in known:
                return known[key]
            folder = tmp_path_factory.mktemp(fault.partition("@")[0] or "healthy")
            log = folder / "fault.jsonl"
            arguments = [*SHORT, "--text", str(text), *options]
            if fault:
                arguments += ["--fault", fault, "--fault-log", str(log)]
            asked: dict[str, Any] = {"folder": str(folder), "trainer": trainer, "ranks": 2}
            asked |= {"port": free_port(), "arguments": arguments, "until": until or {}}
            assert server.stdin is not None
            assert server.stdout is not None
            print(json.dumps(asked), file=server.stdin, flush=True)
            answer = server.stdout.readline()
            assert answer, "the server of ranks ended"
            lines = log.read_text().splitlines() if log.exists() else []
            said = [json.loads(line) for line in lines]
            known[key] = Run(
                [line for line in said if "fault" in line],
                [line["ended_step"] for line in said if "fault" not in line],
                json.loads(answer)["ranks"],
            )
            return known[key]

        yield run
        assert server.stdin is not None
        server.stdin.close()
