"""The sentinel's smaller parts: order of deaths, what is told again, notes, the lock."""

import errno
import os
import signal
import time
from pathlib import Path

import pytest

from rankscope.agent import nodedir
from rankscope.agent.nodedir import Registration
from rankscope.agent.sentinel import host, report, stacks
from rankscope.agent.sentinel.deaths import MAX_KEPT, Deaths
from rankscope.agent.sentinel.ending import VANISHED, Ending
from rankscope.agent.sentinel.lock import Lock
from rankscope.agent.sentinel.registry import Registry
from rankscope.agent.sentinel.report import Death
from rankscope.agent.sentinel.watch import Watch
from rankscope.protocol import codec, limits
from rankscope.protocol.messages import Kind, NodeReport, ProcessSample
from rankscope.protocol.procs import start_time_s
from support.samples import MESSAGES
from support.sentinels import make_node_dir
from support.wire import wait_until


def test_of_deaths_seen_at_once_those_by_sigterm_come_last() -> None:
    """A launcher's SIGTERM is the answer to the first death, so it cannot have been the first."""
    seen = [
        Ending("pidfd", signal=signal.SIGTERM),
        Ending("pidfd", signal=signal.SIGTERM),
        Ending("zombie", exit_code=1),
        Ending("pidfd", signal=signal.SIGTERM),
    ]
    assert report.first_cause_first(list(enumerate(seen))) == [2, 0, 1, 3]


def death(rank: int) -> Death:
    return Death(Registration(rank + 1, 1.0, 0, rank), VANISHED, False, 0.0)


def test_deaths_are_told_once_and_in_order() -> None:
    """What does not go stays next in line; what went is told again only to a new hub."""
    deaths, told = Deaths(), list[int]()

    def send(one: Death) -> bool:
        if len(told) == 2:
            return False
        told.append(one.registration.rank)
        return True

    for rank in range(3):
        deaths.add(death(rank))
    deaths.tell(send)
    assert (told, deaths.untold) == ([0, 1], 1)
    told.clear()
    deaths.tell(send)
    assert (told, deaths.untold) == ([2], 0)
    deaths.tell_all_again()
    told.clear()
    deaths.tell(send)
    assert told == [0, 1]


def test_only_so_many_deaths_are_kept() -> None:
    """A run that restarts for days does not grow the sentinel; the oldest deaths go first."""
    deaths, told = Deaths(), list[int]()
    for rank in range(MAX_KEPT + 5):
        deaths.add(death(rank))

    def send(one: Death) -> bool:
        told.append(one.registration.rank)
        return True

    deaths.tell(send)
    assert told == list(range(5, MAX_KEPT + 5))


def sample(attempt: int, rank: int, state: str) -> ProcessSample:
    return ProcessSample(attempt, rank, 100 + rank, state, 0.0, 0.0, 0)


def test_a_report_shows_who_lives_and_how_the_newest_attempt_ended() -> None:
    """Ranks of earlier attempts are left out once they ended."""
    shown = report.select(
        [
            sample(0, 0, "ended"),
            sample(0, 1, "stopped"),
            sample(1, 0, "ended"),
            sample(1, 1, "alive"),
        ]
    )
    assert {(p.attempt, p.rank) for p in shown} == {(0, 1), (1, 0), (1, 1)}


def test_the_largest_report_fits_a_frame() -> None:
    """As many processes and GPUs as a report may hold are still under the hub's limit."""
    base = MESSAGES[Kind.NODE_REPORT]
    assert isinstance(base, NodeReport)
    gpu = base.gpus[0]
    identity = report.Identity("run", "n" * 250, "n" * 240, 1)
    processes = [
        ProcessSample(7, rank, 4_000_000, "stopped", 1234.5, 1e6 + 0.1, 1 << 40, 9.9, 1 << 31)
        for rank in range(2000)
    ]
    message = report.node_report(
        identity,
        1,
        1.0,
        processes=processes,
        gpus=[gpu] * 100,
        load_1min=1.0,
        memory_available_bytes=1,
        memory_limit_bytes=1,
        oom_kills=0,
    )
    assert len(message.processes) == limits.MAX_PROCESSES_PER_NODE
    assert codec.decode(codec.encode(message)) == message


@pytest.mark.parametrize(
    ("may_ptrace", "scope", "says"),
    [
        (False, None, ""),
        (False, 0, ""),
        (False, 1, ""),
        (True, 1, ""),
        (False, 2, "sysctl kernel.yama.ptrace_scope=0"),
        (False, 2, "--cap-add=SYS_PTRACE"),
        (True, 2, ""),
        (True, 3, "until a reboot"),
    ],
)
def test_the_stack_note_says_what_to_change(may_ptrace: bool, scope: int | None, says: str) -> None:
    """Empty where stacks can be read, else the setting and the command."""
    note = stacks.stack_note(may_ptrace, scope)
    assert says in note
    assert bool(note) == bool(says)


def test_available_memory_is_read_from_meminfo() -> None:
    """In bytes; None where a kernel does not tell."""
    assert host.parse_available("MemTotal: 9 kB\nMemAvailable:     2048 kB\n") == 2 << 20
    assert host.parse_available("MemTotal: 9 kB\n") is None


def test_a_watch_without_a_pidfd_still_learns_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel gives no pidfd, polling finds the zombie and its exit code."""

    def refused(pid: int, flags: int = 0) -> int:
        raise OSError(errno.ENOSYS, "not here")

    monkeypatch.setattr(os, "pidfd_open", refused)
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(write)
        os.read(read, 1)
        os._exit(3)
    os.close(read)
    started_s = start_time_s(pid)
    assert started_s is not None
    watch = Watch(Registration(pid, started_s, 0, 0), time.monotonic())
    try:
        assert watch.found
        assert watch.pidfd is None
        assert not watch.has_ended()
        os.close(write)
        wait_until(watch.has_ended)
        assert watch.end(time.monotonic()) == Ending("zombie", exit_code=3)
        assert watch.sample(time.monotonic()).state == "ended"
    finally:
        watch.close()
        os.waitpid(pid, 0)


def test_a_registration_is_new_once(tmp_path: Path) -> None:
    """Reading again gives only what was added or changed since."""
    directory = make_node_dir(tmp_path)
    registry = Registry(directory)
    one, other = Registration(1, 1.0, 0, 0), Registration(2, 1.0, 0, 0)
    assert registry.new(time.time_ns()) == []
    nodedir.register(directory, one)
    assert registry.new(time.time_ns()) == [one]
    assert registry.new(time.time_ns()) == []
    nodedir.register(directory, other)
    assert registry.new(time.time_ns()) == [other]
    far_ns = time.time_ns() + 10**12
    registry.new(far_ns)
    assert registry.new(far_ns) == []
    nodedir.register(directory, Registration(3, 1.0, 0, 1))
    assert registry.new(far_ns) == [Registration(3, 1.0, 0, 1)]


def test_a_folder_that_is_not_there_holds_no_registrations(tmp_path: Path) -> None:
    """It may come later, or may have been removed: neither is an error."""
    registry = Registry(tmp_path / "none")
    assert registry.new(time.time_ns()) == []
    registry.tidy(None)
    registry.remove()


def test_tidying_leaves_a_registration_that_came_a_moment_ago(tmp_path: Path) -> None:
    """Only what is known to have ended is removed, and the folder stays with what is left."""
    directory = make_node_dir(tmp_path)
    registry = Registry(directory)
    ended, fresh = Registration(1, 1.0, 0, 0), Registration(2, 2.0, 1, 0)
    nodedir.register(directory, ended)
    nodedir.register(directory, fresh)
    registry.tidy([ended])
    registry.remove()
    assert nodedir.read_registrations(directory) == [fresh]
    registry.tidy(None)
    registry.remove()
    assert not directory.exists()


def test_a_lock_that_was_removed_by_its_holder_can_be_taken_anew(tmp_path: Path) -> None:
    """The file at the path is what counts, not one that was opened before it was removed."""
    path = tmp_path / "lock"
    first, second = Lock(path), Lock(path)
    assert first.acquire()
    assert not second.acquire()
    first.release(remove=True)
    assert not path.exists()
    assert second.acquire()
    assert path.exists()
    assert not first.acquire()
    second.release()
    assert first.acquire()
    first.release(remove=True)
