"""The line in ``/proc/<pid>/stat``: state, start, processor time, size and exit code."""

import os
from dataclasses import dataclass

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Stat:
    """The fields of proc(5) that the sentinel uses."""

    state: str
    """One letter: R, S, D run; T is stopped by a signal; t by a tracer; Z, X have ended."""
    start_time_s: float
    """Seconds since boot: two processes with one pid differ in it."""
    cpu_s: float
    resident_bytes: int
    exit_code: int
    """The wait status of a zombie, else 0."""

    @property
    def ended(self) -> bool:
        return self.state in ENDED


ENDED = ("Z", "X", "x")


def letter(line: bytes) -> str:
    """The state alone. Raises ValueError or IndexError for what is no stat line."""
    at = line.rindex(b")") + 2
    return chr(line[at])


def parse(line: bytes) -> Stat:
    """The fields in a stat line; the command's name in parentheses may hold anything."""
    fields = line[line.rindex(b")") + 2 :].split()
    return Stat(  # fields[0] is field 3 of proc(5)
        state=fields[0].decode("ascii"),
        start_time_s=int(fields[19]) / _TICKS_PER_S,
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_PER_S,
        resident_bytes=max(0, int(fields[21])) * _PAGE_BYTES,
        exit_code=int(fields[49]),
    )


class StatFile:
    """The open stat file of one process.

    It stays with that process: once it was reaped, reading fails (ESRCH), also when its pid has
    been given to another one.
    """

    def __init__(self, pid: int) -> None:
        """Raises OSError when there is no such process."""
        self._descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)

    def line(self) -> bytes:
        """The process as it is now, to be parsed; empty once it is gone."""
        try:
            return os.pread(self._descriptor, 4096, 0)
        except OSError:
            return b""

    def read(self) -> Stat | None:
        """The process as it is now; None once it is gone."""
        try:
            return parse(self.line())
        except (ValueError, IndexError):
            return None

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
