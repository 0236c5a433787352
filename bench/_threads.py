"""The processor time of what watches, by thread: it can be told apart also beside other work.

Linux alone: ``/proc/<pid>/task/<tid>/schedstat`` counts nanoseconds.
"""

import contextlib
import os
import threading
from pathlib import Path

OURS = "rankscope"
"""What the agent's thread is called."""


Spent = dict[str, tuple[float, int]]
"""By part: seconds of processor time, and how often one of its threads went to sleep."""


def watching(others: dict[str, int]) -> Spent:
    """What this process's agent has spent so far, and ``others``: processes by name.

    The agent is its sending thread and the socket library's threads beside it.
    """
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    agent = [
        (spent_s, sleeps)
        for tid, name, spent_s, sleeps in _threads(os.getpid())
        if names.get(tid) == OURS or name.startswith("ZMQ")
    ]
    found = {"agents": _together(agent)}
    for label, pid in others.items():
        found[label] = _together([thread[2:] for thread in _threads(pid)])
    return found


def since(before: Spent, now: Spent) -> Spent:
    """What was spent between the two; a part that was not there before is left out."""
    return {
        part: (spent_s - before[part][0], sleeps - before[part][1])
        for part, (spent_s, sleeps) in now.items()
        if part in before
    }


def _together(threads: list[tuple[float, int]]) -> tuple[float, int]:
    return sum(spent_s for spent_s, _ in threads), sum(sleeps for _, sleeps in threads)


def hub_and_sentinel() -> dict[str, int]:
    """Their pids, where they are on this machine: in the environment of ``rankscope run``."""
    from rankscope.agent import nodedir
    from rankscope.protocol import env, rundir

    run, found = os.environ[env.RUN], {}
    info = rundir.RunDirectory(Path(os.environ[env.HOME]) / "runs" / run).read_info()
    if info.hub is not None:
        found["hub"] = info.hub.pid
    lock = nodedir.sentinel_lock_path(nodedir.node_dir(run))
    with contextlib.suppress(OSError, ValueError, IndexError):
        found["sentinel"] = int(lock.read_text().split()[0])
    return found


def _threads(pid: int) -> list[tuple[int, str, float, int]]:
    """(tid, name, seconds, sleeps) of each thread; those that end meanwhile are left out."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError, StopIteration):
                spent_ns = int((task / "schedstat").read_text().split()[0])
                name = (task / "comm").read_text().strip()
                found.append((int(task.name), name, spent_ns / 1e9, _sleeps(task)))
    return found


def _sleeps(task: Path) -> int:
    lines = (task / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_"))
