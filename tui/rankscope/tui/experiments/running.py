"""Running a job on ranks of this machine, under torchrun, and reading what they wrote."""

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import msgspec

from rankscope.protocol import env, experiments
from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.experiments import Job, Measured
from rankscope.tui.demo.plan import torchrun
from rankscope.tui.drill.ending import end
from rankscope.tui.launcher.child import Child, exit_on_signals
from rankscope.tui.text.output import complain

PROGRAM = "rankscope.trainers.experiments.measure"
POLL_S = 0.05
KILLED = re.compile(
    r"Root Cause.*?rank +: (\d+) .*?exitcode +: -\d+ .*?\((SIG(?!ABRT)\w+)\)", re.DOTALL
)
"""What torchrun prints of the rank that ended first, when that was by a signal.
One that aborted has said why.
"""

Tell = Callable[[int], None]
"""Called with how many cases are done, as they get done."""


def check_torch() -> None:
    """Raise :class:`UserError` where nothing can be trained."""
    if find_spec("torch") is None or find_spec("rankscope.trainers") is None:
        raise UserError("this trains for real and needs torch: pip install 'rankscope[torch]'")


def measure(job: Job, ranks: int, tell: Tell) -> list[list[Measured]]:
    """Run ``job`` on ``ranks`` ranks; of each case what every rank found, in the order of ranks.

    Raises :class:`UserError` when the ranks refuse the job (exit code 2) or fail (1).
    """
    with tempfile.TemporaryDirectory(prefix="rankscope-measure-") as name, exit_on_signals():
        folder = Path(name)
        file, log = folder / "job.json", folder / "ranks.log"
        file.write_bytes(experiments.encode(job))
        command = torchrun(ranks, PROGRAM, str(file), str(folder))
        environ = os.environ | {"OMP_NUM_THREADS": "1", env.SWITCH: "off"}
        with log.open("wb") as output:
            child = Child(command, environ, output, own_group=True)
            try:
                code = _wait(child, folder / "rank-0.jsonl", tell)
            finally:
                if child.poll() is None:
                    end(child)
        if code != 0:
            raise failure(code, log.read_text(errors="replace"))
        return by_case([_read(folder / f"rank-{rank}.jsonl") for rank in range(ranks)], job)


def _wait(child: Child, first: Path, tell: Tell) -> int:
    told = 0
    while (code := child.poll()) is None:
        done = first.read_bytes().count(b"\n") if first.exists() else 0
        if done > told:
            told = done
            tell(told)
        time.sleep(POLL_S)
    return code


def _read(file: Path) -> list[Measured]:
    try:
        return [experiments.decode_measured(line) for line in file.read_bytes().splitlines()]
    except (OSError, msgspec.DecodeError) as error:
        raise UserError(f"a rank left no results ({error})", Exit.PROBLEM) from None


def by_case(by_rank: list[list[Measured]], job: Job) -> list[list[Measured]]:
    """Turned round; raises :class:`UserError` when a rank has not been through all of it."""
    if any(len(found) != len(job.cases) for found in by_rank):
        raise UserError("a rank ended early, without a word; try it again", Exit.PROBLEM)
    return [[found[case] for found in by_rank] for case in range(len(job.cases))]


def failure(code: int, log: str) -> UserError:
    """Why ranks ended with ``code``, from what they printed: their own refusal, or what is last."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for line in lines:
        if line.startswith(f"{PROGRAM}: "):
            return UserError(line.removeprefix(f"{PROGRAM}: "))
    if killed := KILLED.search(log):
        rank, signal = killed.groups()
        why = "; memory may have run out" if signal == "SIGKILL" else ""
        return UserError(f"rank {rank} was ended by {signal}{why}", Exit.PROBLEM)
    errors = [line for line in lines if "Error" in line and not line.startswith(("File", "["))]
    last = (errors or lines or ["without a word"])[-1 if not errors else 0]
    return UserError(f"the ranks ended with exit code {code}: {last[:300]}", Exit.PROBLEM)


def progress(ranks: int, cases: int, json: bool) -> Tell:
    """Says on stderr how far it is, where somebody watches and output is not for a program."""

    def tell(done: int) -> None:
        if not json and sys.stderr.isatty() and cases > 1:
            complain(f"{ranks} rank{'s' * (ranks > 1)}: {done} of {cases} measured")

    return tell
