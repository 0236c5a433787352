"""Whether the ranks' stacks can be read from outside, and what to change if not."""

import re
from pathlib import Path

_CAP_SYS_PTRACE = 19


def stack_note(may_ptrace: bool, scope: int | None) -> str:
    """Empty when stacks of this user's processes can be read; otherwise what to change.

    ``scope`` is Yama's ``kernel.yama.ptrace_scope`` (None where there is no Yama): 0 lets a user
    read all processes of their own, 1 only descendants and those that allow it (the ranks let
    their node's sentinel: ``ptracer``), 2 needs CAP_SYS_PTRACE, 3 forbids it to everyone until the
    next boot.
    """
    if scope is None or scope <= 1:
        return ""
    if scope >= 3:
        return "kernel.yama.ptrace_scope is 3: stacks cannot be read until a reboot sets it lower"
    if may_ptrace:
        return ""
    return (
        f"kernel.yama.ptrace_scope is {scope}: to read ranks' stacks, an administrator runs "
        "sysctl kernel.yama.ptrace_scope=0, or the container gets --cap-add=SYS_PTRACE"
    )


def read_stack_note() -> str:
    """The note for this process on this machine."""
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        scope = None
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        status = ""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    effective = int(found.group(1), 16) if found else 0
    return stack_note(bool(effective >> _CAP_SYS_PTRACE & 1), scope)
