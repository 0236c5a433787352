"""Letting the node's sentinel, and nobody else, read this rank's stacks from outside.

Where Yama's ``ptrace_scope`` is 1, a process may be read by its ancestors only, and the sentinel is
none. The kernel lets a process name one more (``PR_SET_PTRACER``), which then may, together with
what it starts. A debugger that the user's program had named so before loses that place.
"""

import ctypes
from pathlib import Path

PR_SET_PTRACER = 0x59616D61
SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")


def is_needed(scope: Path = SCOPE) -> bool:
    """Whether naming a reader makes a difference on this machine."""
    try:
        return int(scope.read_text()) == 1
    except (OSError, ValueError):
        return False


def allow(pid: int) -> bool:
    """Let ``pid`` and what it starts read this process; whether the kernel took it."""
    return _prctl(PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0) == 0


def _prctl(option: int, *arguments: object) -> int:
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return int(prctl(option, *arguments))
