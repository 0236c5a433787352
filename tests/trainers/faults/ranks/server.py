"""Forks the ranks of small real runs, one run for each line of stdin; a result line for each.

A line is ``{"folder", "trainer", "ranks", "arguments", "until"}``. The ranks are this process's
children, so their exit statuses are seen, and forked, so that a run takes a second and not ten.
They run the trainer's own ``main``, with an observer (``observer.py``) between it and the step
loop. A run is over when all ranks have ended, or when each rank is in the function that ``until``
names for it (``stopped``: by a signal; ``ended``: not any more; ``called NAME``: was in it when it
called a collective). Stacks are taken in C (faulthandler), so also of a rank that holds the GIL.
Whoever is left is killed.
"""

import faulthandler
import importlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from torch.optim import AdamW

sys.path.insert(0, str(Path(__file__).resolve().parent))
import observer  # type: ignore[import-not-found]

TRAINERS = {
    name: importlib.import_module(f"rankscope.trainers.{name}") for name in ("ddp", "fsdp2")
}
importlib.import_module("rankscope.trainers.faults.inject")
AdamW([torch.zeros(1)])  # its imports take seconds, once

DEADLINE_S = 150.0
LOOK_S = 0.02
STACKS_S = 0.2
SILENT_S = 2.0
SILENT_LOOKS = 20
"""Who is silent says nothing while another rank speaks so often, as the machine lets it."""


def serve() -> None:
    for line in sys.stdin:
        print(json.dumps(run(**json.loads(line))), flush=True)


def run(
    folder: str, trainer: str, ranks: int, port: int, arguments: list[str], until: dict[str, str]
) -> dict[str, Any]:
    place = Path(folder)
    pids = {}
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            be_rank(place, trainer, rank, ranks, port, arguments)
        pids[rank] = pid
    ended = wait(place, pids, {int(rank): function for rank, function in until.items()})
    return {"ranks": [outcome(place, rank, ended.get(rank)) for rank in range(ranks)]}


def be_rank(
    place: Path, trainer: str, rank: int, ranks: int, port: int, arguments: list[str]
) -> None:
    """What a forked rank does; it never returns."""
    code = 70
    try:
        with (place / f"{rank}.out").open("wb") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        stack = (place / f"{rank}.stack").open("ab")
        faulthandler.register(signal.SIGUSR1, stack, all_threads=False)
        observer.watch(place, rank)
        from rankscope.trainers.program import main

        code = main(TRAINERS[trainer].TRAINER, arguments)
    except BaseException:  # noqa: BLE001 - a rank's end is what is tested
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        os._exit(code)


def wait(place: Path, pids: dict[int, int], until: dict[int, str]) -> dict[int, int]:
    """Wait status of each rank that ended by itself; the others are killed."""
    ended: dict[int, int] = {}
    deadline = time.monotonic() + DEADLINE_S
    stacks_s = time.monotonic()
    while len(ended) < len(pids) and time.monotonic() < deadline:
        for rank in pids.keys() - ended.keys():
            pid, status = os.waitpid(pids[rank], os.WNOHANG)
            if pid:
                ended[rank] = status
        if until and (place / "fault.jsonl").exists() and time.monotonic() - stacks_s > STACKS_S:
            if all(
                r in ended or is_in(place, r, pids[r], function) for r, function in until.items()
            ):
                listen(place, {rank: pids[rank] for rank in pids.keys() - ended.keys()})
                break
            stacks_s = time.monotonic()
        time.sleep(LOOK_S)
    left = [pids[rank] for rank in pids.keys() - ended.keys()]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that none sees another die
        for pid in left:
            os.kill(pid, number)
    for pid in left:
        os.waitpid(pid, 0)
    return ended


def listen(place: Path, pids: dict[int, int]) -> None:
    """Wait until another thread of each rank has done something; note which rank's never does.

    Twice: what it does first may have begun before. Who ends meanwhile is not listened to.
    """
    files = {rank: place / f"{rank}.collectives" for rank in pids}
    seen = {rank: file.stat().st_mtime_ns for rank, file in files.items()}
    spoken = dict.fromkeys(files, 0)
    begun_s = time.monotonic()
    while min(spoken.values(), default=2) < 2:
        waited_s = time.monotonic() - begun_s
        if waited_s > DEADLINE_S:
            break
        if waited_s > SILENT_S and max(spoken.values()) >= SILENT_LOOKS:
            break
        time.sleep(LOOK_S)
        for rank, file in files.items():
            at = file.stat().st_mtime_ns
            spoken[rank] += at != seen[rank]
            seen[rank] = at
            if os.waitid(os.P_PID, pids[rank], os.WEXITED | os.WNOHANG | os.WNOWAIT):
                del spoken[rank], files[rank]
                break
    for rank, times in spoken.items():
        if times < 2:
            (place / f"{rank}.silent").write_text("silent")


def is_in(place: Path, rank: int, pid: int, function: str) -> bool:
    """Whether ``function`` is on the main thread's stack, which is written down anew."""
    if function == "ended":
        return False
    if function.startswith("called "):
        return any(function.split()[1] == call[0] for call in observer.called_in(place, rank))
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    (place / f"{rank}.state").write_text(state)
    if state == "T":
        return function == "stopped"
    file = place / f"{rank}.stack"
    os.truncate(file, 0)
    os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + 5
    while not (text := file.read_text()).endswith("in <module>\n") and time.monotonic() < deadline:
        time.sleep(0.005)
    lines = lines_of(place, function)
    if not lines:
        return f" in {function}\n" in text
    return any(f"line {line} in {function}\n" in text for line in lines)


def lines_of(place: Path, function: str) -> list[int]:
    """At which lines of ``function`` a rank stays, where the log of faults names them.

    Seen in the function it may be on its way to them yet.
    """
    found: list[int] = []
    for told in (place / "fault.jsonl").read_text().splitlines():
        file, _, named = json.loads(told).get("where", {}).get("source", "").partition(" in ")
        if named == function:
            first, _, last = file.partition(":")[2].partition("-")
            found += range(int(first), int(last or first) + 1)
    return found


def outcome(place: Path, rank: int, status: int | None) -> dict[str, Any]:
    def text(kind: str) -> str:
        file = place / f"{rank}.{kind}"
        return file.read_text(errors="replace") if file.exists() else ""

    return {
        "code": None if status is None else os.waitstatus_to_exitcode(status),
        "state": text("state"),
        "silent": text("silent") != "",
        "stack": text("stack"),
        "output": text("out"),
        "steps": [json.loads(line) for line in text("steps").splitlines()],
        "calls": [call[1:] for call in observer.called_in(place, rank)],
        "collectives": observer.recorded_in(place, rank),
    }


if __name__ == "__main__":
    serve()
