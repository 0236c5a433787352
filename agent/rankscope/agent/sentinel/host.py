"""The machine beside the ranks: load and memory."""

import os
import platform
from pathlib import Path

HEAD_BYTES = 512
"""What is asked for is in the first lines."""


def parse_available(meminfo: str) -> int | None:
    """``MemAvailable`` of ``/proc/meminfo`` in bytes; None where the kernel does not tell."""
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def memory_available_bytes() -> int | None:
    """What the machine could still give out without swapping."""
    try:
        with Path("/proc/meminfo").open("rb", buffering=0) as file:
            return parse_available(file.read(HEAD_BYTES).decode("ascii", "replace"))
    except (OSError, ValueError, IndexError):
        return None


def load_1min() -> float | None:
    """Runnable and blocked tasks, averaged over a minute."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def facts() -> dict[str, str]:
    """What a reader of a report may want to know of the machine."""
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": str(os.cpu_count() or 0),
        "python": platform.python_version(),
    }
