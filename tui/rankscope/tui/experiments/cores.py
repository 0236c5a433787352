"""How many ranks can compute at once here."""

import os
from pathlib import Path

CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(limit: Path = CPU_MAX) -> int:
    """Cores that this process may use: by affinity, and by the quota of its cgroup (v2)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = limit.read_text().split()[:2]
        allowed = max(1, int(float(quota) / float(period) + 0.5))
    except (OSError, ValueError):  # no cgroup v2, or no quota ("max")
        return cores or 1
    return min(cores or 1, allowed)


def warn(ranks: int, cores: int, device: str) -> str:
    """The words for more ranks than cores; empty when there are enough, or the work is a GPU's."""
    if device != "cpu" or ranks <= cores:
        return ""
    return (
        f"{ranks} ranks on {cores} core{'' if cores == 1 else 's'}: they take turns, "
        "and times say nothing of the method"
    )
