"""Running trainers as their users do: under torchrun, or as one plain process."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import warm

TIMEOUT_S = 240.0
"""Far beyond what any run here takes; one that gets there hangs."""


@dataclass(frozen=True)
class Ended:
    code: int
    stdout: str
    stderr: str


Launch = Callable[..., Ended]
"""``launch(*arguments, ranks=N, NAME=value)``: the arguments of ``python``, or of torchrun for N
ranks, and what is added to its environment."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without a launcher's variables, one thread a rank."""
    launcher = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    kept = {name: value for name, value in os.environ.items() if name not in launcher}
    return kept | {"OMP_NUM_THREADS": "1"} | dict(extra or {})


@pytest.fixture(scope="session")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    home = tmp_path_factory.mktemp("home")

    def launch(*arguments: str, ranks: int | None = None, **variables: str) -> Ended:
        command = [warm.python()]
        if ranks is not None:
            command += ["-m", "torch.distributed.run", "--standalone"]
            command += ["--nproc-per-node", str(ranks)]
        process = subprocess.Popen(
            [*command, *arguments],
            env=environment(
                {"RANKSCOPE_HOME": str(home), "PYTHON_EXEC": warm.python(), **variables}
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun passes it on to its ranks
            process.communicate()
            raise
        return Ended(process.returncode, stdout, stderr)

    return launch


History = list[dict[str, Any]]


@pytest.fixture(scope="session")
def history(launch: Launch, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., History]:
    """``history("ddp", *options, ranks=N)``: what a clean run says of each of its steps.

    Clean: it ends with 0 and nothing is on stderr but lines with ``says`` in them.
    """

    def history(trainer: str, *options: str, ranks: int | None = None, says: str = "") -> History:
        file = tmp_path_factory.mktemp("history") / "steps.jsonl"
        arguments = ("-m", f"rankscope.trainers.{trainer}", "--history", str(file), *options)
        ended = launch(*arguments, ranks=ranks)
        assert ended.code == 0, ended
        assert all(says and says in line for line in ended.stderr.splitlines()), ended
        return [json.loads(line) for line in file.read_text().splitlines()]

    return history


@pytest.fixture
def some_text(tmp_path: Path) -> Path:
    """A file with 20,000 bytes of text."""
    file = tmp_path / "some.txt"
    file.write_text(("All happy ranks are alike. " * 1000)[:20_000])
    return file
