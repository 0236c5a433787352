"""Telling whether a process is still the one that was meant: a pid and its start time."""

import os
from pathlib import Path


def start_time_s(pid: int) -> float | None:
    """When ``pid`` started, in seconds since boot; None when there is no such process.

    Field 22 of ``/proc/<pid>/stat`` (proc(5)); elsewhere psutil's wall-clock time, which serves
    the same purpose: two processes with one pid differ in it.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
        import psutil  # late: it costs more to load than all the rest of this room

        try:
            return float(psutil.Process(pid).create_time())
        except psutil.Error:
            return None
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):  # a zombie runs no more
        return None
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def is_alive(pid: int, started_s: float) -> bool:
    """Whether process ``pid`` that started at ``started_s`` (:func:`start_time_s`) still runs."""
    now = start_time_s(pid)
    return now is not None and abs(now - started_s) < 0.5


def is_stopped(pid: int) -> bool:
    """Whether ``pid`` is stopped by a signal or a debugger (proc(5)); False if none can say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rindex(b")") + 2 :].split()[0] in (b"T", b"t")


def lock_holder(path: Path) -> int | None:
    """The pid that holds a ``flock`` on ``path``; None when none does, or it cannot be told.

    Read from ``/proc/locks`` (proc(5)): trying the lock would keep a hub that starts from it.
    """
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
            return int(fields[4]) if int(fields[4]) > 0 else None
    return None
