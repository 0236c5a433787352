"""Starting small training programs, alone or under torchrun, and reading what they print."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from support import warm
from support.ports import free_port

PROGRAMS = Path(__file__).resolve().parent.parent / "agent" / "programs"
TIMEOUT_S = 150.0


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's, without what a launcher around the tests may have set, plus ``extra``."""
    foreign = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in foreign and not name.startswith(("RANKSCOPE", "TORCHELASTIC"))
    }
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHON_EXEC": warm.python(), **extra}


def command(program: str, ranks: int = 0, /, **options: Any) -> list[str]:
    """``program`` of the programs folder with JSON options; ``ranks`` of them under torchrun."""
    script = [str(PROGRAMS / program), json.dumps(options)]
    if not ranks:
        return [warm.python(), *script]
    torchrun = [warm.python(), "-m", "torch.distributed.run", "--master-addr", "127.0.0.1"]
    return [*torchrun, "--nproc-per-node", str(ranks), "--master-port", str(free_port()), *script]


def start(
    program: str, environ: Mapping[str, str], ranks: int = 0, /, **options: Any
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command(program, ranks, **options),
        env=environment(environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


class Ended:
    """How a program ended: ``code``, its output, and the JSON lines it printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def lines(self) -> list[dict[str, Any]]:
        """One dictionary a rank, in the order of ranks."""
        found = [one for line in self.out.splitlines() for one in objects(line)]
        return sorted(found, key=lambda line: line.get("rank", 0))

    @property
    def weights(self) -> list[str]:
        return [line["weights"] for line in self.lines]


def objects(line: str) -> Iterator[dict[str, Any]]:
    """The JSON objects that a line is made of: of two ranks that print at once, both."""
    while line.startswith("{"):
        found, end = json.JSONDecoder().raw_decode(line)
        yield found
        line = line[end:]


def finish(process: "subprocess.Popen[str]") -> Ended:
    """Wait for the end; a program that hangs is killed, and the test fails."""
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the launcher and its ranks
        out, err = process.communicate()
        raise AssertionError(f"the program hung; it printed:\n{out}\n{err}") from None
    return Ended(process.returncode, out, err)


def run(program: str, environ: Mapping[str, str], ranks: int = 0, /, **options: Any) -> Ended:
    return finish(start(program, environ, ranks, **options))
