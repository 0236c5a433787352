"""How a process ended, learnt by a process that is not its parent.

Two witnesses, in this order:

- ``zombie``: field 52 (``exit_code``) of ``/proc/<pid>/stat``, there until the parent reaps it
  (proc(5); the kernel prints 0 there to a reader without ptrace rights, so another user's process
  is not asked);
- ``pidfd``: the ioctl ``PIDFD_GET_INFO`` of Linux 6.15 and newer, which answers once it was
  reaped, for as long as the pidfd is open.

Otherwise the process ``vanished``: that it ended is certain, how is not.
"""

import contextlib
import fcntl
import os
import struct
from dataclasses import dataclass
from typing import Literal

from rankscope.agent.sentinel.procstat import Stat

How = Literal["pidfd", "zombie", "vanished"]

_PIDFD_INFO = struct.Struct("=QQ11Ii")
"""``struct pidfd_info`` of linux/pidfd.h, first version: mask, cgroup id, eleven ids, exit code."""
_PIDFD_GET_INFO = (3 << 30) | (_PIDFD_INFO.size << 16) | (0xFF << 8) | 11
_PIDFD_INFO_EXIT = 1 << 3


@dataclass(frozen=True)
class Ending:
    """How a process ended: an exit code, or the signal that killed it, or neither is known."""

    how: How
    exit_code: int | None = None
    signal: int | None = None


VANISHED = Ending("vanished")


def decode_wait_status(status: int, how: How) -> Ending:
    """The ending in a wait status (wait(2)): signal in the low 7 bits, exit code in bits 8–15."""
    signal = status & 0x7F
    if signal:
        return Ending(how, signal=signal)
    return Ending(how, exit_code=(status >> 8) & 0xFF)


def from_zombie(stat: Stat | None, same_user: bool) -> Ending | None:
    """The ending that a zombie's stat line tells; None when it is none or may not be read."""
    if stat is None or stat.state != "Z" or not same_user:
        return None
    return decode_wait_status(stat.exit_code, "zombie")


def decode_pidfd_info(raw: bytes) -> Ending | None:
    """The ending in a ``struct pidfd_info``; None while the kernel has none to tell."""
    mask, *_, exit_code = _PIDFD_INFO.unpack(raw)
    if not mask & _PIDFD_INFO_EXIT:
        return None
    return decode_wait_status(exit_code, "pidfd")


def from_pidfd(pidfd: int) -> Ending | None:
    """The ending that the kernel kept with ``pidfd``; None before Linux 6.15 or before reaping."""
    request = bytearray(_PIDFD_INFO.size)
    struct.pack_into("=Q", request, 0, _PIDFD_INFO_EXIT)
    with contextlib.suppress(OSError):
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, request)
        return decode_pidfd_info(bytes(request))
    return None


def same_user(pid: int) -> bool:
    """Whether ``pid`` is of this user (or this is root), so that its exit code can be believed."""
    if os.geteuid() == 0:
        return True
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()  # noqa: PTH116
    except OSError:
        return False
