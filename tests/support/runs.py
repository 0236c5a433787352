"""Whole runs for tests: ``rankscope run -- torchrun … trainer``, watched through the command line.

Everything is real: ranks, hub, sentinel, sockets. What is started is ended by its pid.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from rankscope.protocol.exits import Exit
from support import warm, wire

RANKSCOPE = [str(Path(sys.executable).with_name("rankscope"))]
DEADLINE_S = 90.0
"""For things that need ranks to start on a busy machine; reaching it is a failure."""

READS = frozenset({"status", "ranks", "check", "collectives", "numerics", "memory", "incidents"})
"""Commands that may be given again: they only look."""


def wait_until(
    condition: Callable[[], wire.Found | None], what: str, deadline_s: float = DEADLINE_S
) -> wire.Found:
    """The first true value of ``condition``; fails with ``what`` after ``deadline_s``."""
    return wire.wait_until(condition, what, deadline_s)


def environment(home: Path, **more: str) -> dict[str, str]:
    """This process's environment with a run home of its own and one thread a rank.

    torchrun starts its ranks warm; with ``PYTHON_EXEC=sys.executable`` as a user's would.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RANKSCOPE")}
    return {
        **kept,
        "RANKSCOPE_HOME": str(home),
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "LC_ALL": "C.UTF-8",
        "PYTHON_EXEC": warm.python(),
        **more,
    }


def grave(status: dict[str, Any]) -> dict[str, Any] | None:
    """The verdict if it is critical: on a busy machine a rank may be late or straggle in truth."""
    verdict: dict[str, Any] | None = status["verdict"]
    return verdict if verdict is not None and verdict["severity"] == "critical" else None


def kinds(status: dict[str, Any]) -> list[str]:
    """The kinds of all critical findings."""
    return [one["kind"] for one in status["findings"] if one["severity"] == "critical"]


def torchrun(ranks: int, *trainer: str, module: str = "rankscope.trainers.ddp") -> list[str]:
    """The command line of a training run on this machine, on a free rendezvous port."""
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1"),
        *(f"--nproc-per-node={ranks}", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"),
        *("-m", module, *trainer),
    ]


@dataclass
class Run:
    """A live run: the launcher's process and how to ask about it."""

    home: Path
    process: "subprocess.Popen[str]"
    out: Path
    started: list[int] = field(default_factory=list)

    def ask(self, *command: str, timeout_s: float = 120.0) -> "subprocess.CompletedProcess[str]":
        """Run ``rankscope COMMAND`` beside it.

        A hub that a busy machine kept from answering a read in time is asked again, until
        ``timeout_s`` have gone.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            answer = subprocess.run(
                [*RANKSCOPE, *command],
                env=environment(self.home),
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
            late = command[0] in READS and answer.returncode == Exit.TIMED_OUT
            if not late or time.monotonic() >= until_s:
                return answer

    def status(self) -> dict[str, Any] | None:
        """``status --json``, or None while there is no answer."""
        answer = self.ask("status", "--json")
        if answer.returncode != 0:
            return None
        document: dict[str, Any] = json.loads(answer.stdout)
        return document

    def wait_status(
        self, condition: Callable[[dict[str, Any]], Any], what: str, deadline_s: float = DEADLINE_S
    ) -> dict[str, Any]:
        """The first status for which ``condition`` holds."""
        last: dict[str, Any] | None = None

        def check() -> dict[str, Any] | None:
            nonlocal last
            last = self.status()
            return last if last is not None and condition(last) else None

        try:
            # Each look is a process that takes half a second of what the run itself could use.
            return wire.wait_until(check, what, deadline_s, every_s=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}; last status {last}; output {self.output()}") from None

    def output(self) -> str:
        """What the training command has printed so far."""
        return self.out.read_text(errors="replace")

    def run_json(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(
            (self.home / "runs" / "latest" / "run.json").read_text()
        )
        return document

    def hub_pid(self) -> int:
        return int(self.run_json()["hub"]["pid"])

    def rank_pids(self, ranks: int) -> dict[int, int]:
        """The pid of each rank, once all of them are known to the hub."""
        document = self.wait_status(
            lambda s: sum(row["pid"] is not None for row in s["ranks"]) == ranks,
            f"{ranks} ranks known",
        )
        return {row["rank"]: row["pid"] for row in document["ranks"]}


@contextlib.contextmanager
def live_run(home: Path, command: list[str], *options: str, **env: str) -> Iterator[Run]:
    """``rankscope run OPTIONS -- COMMAND`` until the block ends; then nothing of it is left."""
    out = home.parent / f"{home.name}.out"
    with out.open("w") as sink:
        process = subprocess.Popen(
            [*RANKSCOPE, "run", *options, "--", *command],
            env=environment(home, **env),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    run = Run(home, process, out)
    try:
        yield run
    finally:
        end_run(run)


def end_run(run: Run) -> None:
    """End the launcher, its ranks, the hub and the sentinels, by pid."""
    ours = {child.pid: child for child in _descendants(run.process.pid)}
    if run.process.poll() is None:
        run.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.process.wait(30)
    for process in ours.values():
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGCONT)
            process.kill()
    for process in belonging_to(run.home):
        with contextlib.suppress(psutil.Error):
            process.kill()
    if run.process.poll() is None:
        run.process.kill()
    run.process.wait(60)


def belonging_to(home: Path) -> list[psutil.Process]:
    """Processes whose environment names ``home``: hubs, sentinels, ranks of that home only."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get("RANKSCOPE_HOME") == str(home):
                found.append(process)
    for pid in warm.living(home):
        with contextlib.suppress(psutil.Error):
            found.append(psutil.Process(pid))
    return found


def _descendants(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []
