"""Wait statuses, stat lines and the kernel's exit records, decoded."""

import os
import signal
import struct

import pytest

from rankscope.agent.sentinel import ending, procstat
from rankscope.agent.sentinel.ending import Ending


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_a_wait_status_with_an_exit_code(code: int) -> None:
    """The exit code stands in the second byte."""
    assert ending.decode_wait_status(code << 8, "zombie") == Ending("zombie", exit_code=code)


@pytest.mark.parametrize("core_dumped", [False, True])
def test_a_wait_status_with_a_signal(core_dumped: bool) -> None:
    """The signal stands in the low seven bits, whether or not a core was dumped."""
    status = signal.SIGSEGV | (0x80 if core_dumped else 0)
    assert ending.decode_wait_status(status, "pidfd") == Ending("pidfd", signal=signal.SIGSEGV)


def test_the_exit_record_has_the_size_that_the_kernel_gave_it() -> None:
    """64 bytes with the exit code in the last four, and only if the mask says that it is there."""
    record = struct.pack("=Q52xi", 1 << 3, 3 << 8)
    assert len(record) == 64
    assert ending.decode_pidfd_info(record) == Ending("pidfd", exit_code=3)
    assert ending.decode_pidfd_info(struct.pack("=Q52xi", 0b111, 0)) is None


def test_only_a_zombie_of_this_user_is_believed() -> None:
    """The kernel shows strangers an exit code of 0: that must not become "exit 0"."""
    zombie = procstat.Stat("Z", 1.0, 0.0, 0, 9)
    assert ending.from_zombie(zombie, same_user=True) == Ending("zombie", signal=9)
    assert ending.from_zombie(zombie, same_user=False) is None
    assert ending.from_zombie(procstat.Stat("S", 1.0, 0.0, 0, 0), same_user=True) is None
    assert ending.from_zombie(None, same_user=True) is None


def test_a_stat_line_is_read_whatever_the_command_is_called() -> None:
    """A command's name may hold blanks, parentheses and what looks like fields."""
    fields = ["T"] + ["0"] * 49
    fields[11], fields[12], fields[19], fields[21], fields[49] = "150", "50", "1234", "7", "256"
    stat = procstat.parse(("42 (a) Z 1) (x) " + " ".join(fields) + "\n").encode())
    assert stat.state == "T"
    assert stat.cpu_s == 200 / os.sysconf("SC_CLK_TCK")
    assert stat.start_time_s == 1234 / os.sysconf("SC_CLK_TCK")
    assert stat.resident_bytes == 7 * os.sysconf("SC_PAGE_SIZE")
    assert stat.exit_code == 256
    assert not stat.ended


def test_a_living_process_has_no_ending() -> None:
    """The kernel's exit record of a process that runs is empty, or not known to the kernel."""
    pidfd = os.pidfd_open(os.getpid())
    try:
        assert ending.from_pidfd(pidfd) is None
    finally:
        os.close(pidfd)


def test_a_stat_file_stays_with_its_process() -> None:
    """Once the process was reaped its open stat file reads as gone."""
    pid = os.fork()
    if not pid:
        os._exit(3)
    file = procstat.StatFile(pid)
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        stat = file.read()
        assert stat is not None
        assert ending.from_zombie(stat, ending.same_user(pid)) == Ending("zombie", exit_code=3)
        os.waitpid(pid, 0)
        assert file.read() is None
    finally:
        file.close()
