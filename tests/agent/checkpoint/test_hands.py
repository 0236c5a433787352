"""The process that writes a rank's file, and what happens when it cannot."""

import contextlib
import mmap
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.agent.checkpoint import hands, process, scribe, writing
from rankscope.agent.checkpoint.hands import Inside, Outside
from rankscope.agent.checkpoint.job import in_words
from rankscope.agent.checkpoint.notfinite import NAN, NOT_LOOKED
from rankscope.agent.checkpoint.plan import plan
from rankscope.agent.checkpoint.process import Done, Span
from rankscope.agent.checkpoint.staging import POPULATE_WRITE, Buffer, Stager
from support import warm

pytestmark = pytest.mark.processes

SIZE = 24 << 20
SPANS = [
    *(Span(0, 9 << 20, 100, "int64"), Span(9 << 20, 0, 50)),
    Span(9 << 20, SIZE - (9 << 20), 10 << 20, "float32"),
]
FOUND = [NOT_LOOKED, NOT_LOOKED, NAN]
"""Of numbers: among so many bytes drawn at random there is a NaN."""
NEVER_S = 1e9


@pytest.fixture
def buffer() -> Buffer:
    made = Buffer(SIZE)
    made.tensor.copy_(torch.randint(0, 256, (SIZE,), dtype=torch.uint8))
    if made.descriptor < 0:
        pytest.skip("no memory that another process can be given")
    return made


@pytest.fixture
def target(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def data_of(buffer: Buffer) -> memoryview:
    array: Any = buffer.tensor.numpy()
    return memoryview(array)


def outside(buffer: Buffer, patience_s: tuple[float, float, float]) -> Outside:
    return Outside(buffer, data_of(buffer), threading.Event(), threading.Event(), patience_s)


def pid_of(hand: Outside) -> int:
    assert hand._scribe is not None
    return hand._scribe.process.pid


def check(buffer: Buffer, target: int, done: list[Done], told: list[int]) -> None:
    """What is in the file, its checksums, and what was told of it are right."""
    data = buffer.tensor.numpy().tobytes()
    for span, one in zip(SPANS, done, strict=True):
        expected = data[span.begin : span.begin + span.size_bytes]
        assert os.pread(target, span.size_bytes, span.at) == expected
        assert one.crc32 == zlib.crc32(expected)
    assert sum(told) == SIZE
    assert [one.found for one in done] == FOUND


@pytest.mark.parametrize("patience_s", [(NEVER_S, 0, 0), (0.0, NEVER_S, 0), (0.0, 0.0, NEVER_S)])
def test_another_process_writes_what_this_one_would(
    buffer: Buffer, target: int, tmp_path: Path, patience_s: tuple[float, float, float]
) -> None:
    """Also when it got nothing of the cores and another one, less polite, goes on."""
    told: list[int] = []
    with outside(buffer, patience_s) as hand:
        found = hand.write(target, SPANS, told.append)
        hand.sync(tmp_path / "file")
    check(buffer, target, found, told)
    inside = Inside(data_of(buffer))
    assert inside.write(target, SPANS, lambda count: None) == found


@pytest.mark.parametrize("program", ["/nowhere/python", "/bin/false"])
def test_where_no_process_can_be_started_the_thread_writes(
    buffer: Buffer, target: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """A save must not fail because a program is missing, or is another one."""
    monkeypatch.setattr(sys, "executable", program)
    told: list[int] = []
    with outside(buffer, (NEVER_S, 0, 0)) as hand:
        found = hand.write(target, SPANS, told.append)
        hand.sync(tmp_path / "file")
    check(buffer, target, found, told)


def test_a_process_that_cannot_begin_idly_begins_all_the_same(
    buffer: Buffer, target: int, tmp_path: Path
) -> None:
    """What sets its priority may be forbidden; who writes then is a process, too."""
    told: list[int] = []
    with outside(buffer, (NEVER_S, 0, 0)) as hand:
        hand._idly = ("/bin/false",)
        found = hand.write(target, SPANS, told.append)
        assert hand._scribe is not None
        hand.sync(tmp_path / "file")
    check(buffer, target, found, told)


@pytest.mark.skipif(not process.idly(), reason="no chrt")
def test_a_process_that_writes_has_the_lowest_priority_from_its_beginning(
    buffer: Buffer, target: int
) -> None:
    """Within the share of the cores that the run's session has, but not in its process group."""
    with outside(buffer, (NEVER_S, 0, 0)) as hand:
        hand._start(target, 2, [])
        pid = pid_of(hand)
        deadline = time.monotonic() + 60
        while os.sched_getscheduler(pid) != os.SCHED_IDLE:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        assert os.getsid(pid) == os.getsid(0)
        assert os.getpgid(pid) == pid


def test_when_training_waits_for_it_a_save_gives_way_no_longer(
    buffer: Buffer, target: int, tmp_path: Path
) -> None:
    """Neither from the start nor from the moment at which it does."""
    for early in (True, False):
        hurry, told, started = threading.Event(), list[int](), list[int]()
        if early:
            hurry.set()
        buffer.scribe = None  # a new one each time
        hand = Outside(
            buffer, data_of(buffer), threading.Event(), hurry, (NEVER_S, NEVER_S, NEVER_S)
        )
        start = hand._start

        def watched(
            descriptor: int,
            politely: int,
            spans: list[Span],
            hand: Outside = hand,
            start: Callable[..., None] = start,
            started: list[int] = started,
            hurry: threading.Event = hurry,
        ) -> None:
            start(descriptor, politely, spans)
            started.append(politely)
            if politely:  # it gets nothing of the cores
                os.kill(pid_of(hand), signal.SIGSTOP)
                hurry.set()

        hand._start = watched  # type: ignore[method-assign, assignment]
        with hand:
            found = hand.write(target, SPANS, told.append)
            hand.sync(tmp_path / "file")
        check(buffer, target, found, told)
        assert started == ([0] if early else [2, 0])


def while_writing(hand: Outside, target: int, act: Callable[[int], None]) -> Exception:
    """What ``write`` raises when ``act`` is called with the pid of the process, stopped."""
    raised: list[Exception] = []

    def write() -> None:
        try:
            hand.write(target, SPANS, lambda count: None)
        except Exception as error:  # noqa: BLE001 - whatever it raises is looked at
            raised.append(error)

    thread = threading.Thread(target=write)
    start = hand._start

    def stopped(descriptor: int, politely: int, spans: list[Span]) -> None:
        start(descriptor, politely, spans)
        act(pid_of(hand))

    hand._start = stopped  # type: ignore[method-assign, assignment]
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    return raised[0]


def test_a_process_that_is_killed_costs_the_save_in_words(buffer: Buffer, target: int) -> None:
    """Whoever kills it, the system short of memory, say."""
    with outside(buffer, (NEVER_S, 0, 0)) as hand:
        error = while_writing(hand, target, lambda pid: os.kill(pid, signal.SIGKILL))
    assert in_words(error) == "the process that writes ended (signal 9)"


@pytest.mark.parametrize("waited", [True, False], ids=["waited", "new"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_process_that_is_killed_before_its_first_word_is_replaced_once(
    buffer: Buffer, target: int, tmp_path: Path, waited: bool, times: int
) -> None:
    """Whether it was waiting for this save or was started for it: after a second one the save fails
    in words, and the next one is not touched by that."""

    def save(kills: int) -> list[int]:
        told, pids = list[int](), list[int]()
        with outside(buffer, (NEVER_S, 0, 0)) as hand:
            start = hand._start

            def killed(descriptor: int, politely: int, spans: list[Span]) -> None:
                if len(pids) >= kills:
                    start(descriptor, politely, spans)
                else:
                    if buffer.scribe is None:
                        buffer.scribe = process.Scribe(buffer.descriptor, politely)
                    os.kill(buffer.scribe.process.pid, signal.SIGSTOP)
                    start(descriptor, politely, spans)
                    os.kill(pid_of(hand), signal.SIGKILL)
                pids.append(pid_of(hand))

            hand._start = killed  # type: ignore[method-assign, assignment]
            found = hand.write(target, SPANS, told.append)
            hand.sync(tmp_path / "file")
        check(buffer, target, found, told)
        return pids

    if waited:
        save(0)
    if times == 1:
        assert len(set(save(1))) == 2
    else:
        with pytest.raises(ChildProcessError, match=r"the process that writes ended \(signal 9\)"):
            save(2)
    os.ftruncate(target, 0)
    assert len(save(0)) == 1


def test_a_save_that_is_cancelled_ends_the_process(buffer: Buffer, target: int) -> None:
    """Also one that does not get on."""
    pids: list[int] = []
    cancelled = threading.Event()

    def stop(pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        pids.append(pid)
        cancelled.set()

    with Outside(buffer, data_of(buffer), cancelled, threading.Event(), (NEVER_S, 0, 0)) as hand:
        error = while_writing(hand, target, stop)
    assert str(error) == "cancelled"
    assert not Path(f"/proc/{pids[0]}").exists()


def test_a_disk_that_is_full_is_what_the_process_says(buffer: Buffer) -> None:
    """With the system's own words."""
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with outside(buffer, (NEVER_S, 0, 0)) as hand, pytest.raises(OSError, match="No space"):
            hand.write(full, SPANS, lambda count: None)
    finally:
        os.close(full)


def test_the_process_waits_for_the_next_save(buffer: Buffer, target: int, tmp_path: Path) -> None:
    """One that begins costs as much of a core as what it then does; one that was killed meanwhile,
    or is of another politeness, is not waited for."""
    pids = []

    def save(patience_s: tuple[float, float, float] = (NEVER_S, 0, 0)) -> None:
        told: list[int] = []
        with outside(buffer, patience_s) as hand:
            found = hand.write(target, SPANS, told.append)
            pids.append(pid_of(hand))
            hand.sync(tmp_path / "file")
        check(buffer, target, found, told)

    save()
    save()
    os.kill(pids[-1], signal.SIGKILL)
    os.waitid(os.P_PID, pids[-1], os.WEXITED | os.WNOWAIT)
    save()
    save((0.0, 0.0, NEVER_S))
    assert pids[0] == pids[1]
    assert len(set(pids)) == 3
    assert not Path(f"/proc/{pids[2]}").exists()


def test_what_waits_goes_with_the_copied_state(buffer: Buffer, target: int, tmp_path: Path) -> None:
    """Of a state that has grown, or of a checkpointer that nobody has any more."""
    with outside(buffer, (NEVER_S, 0, 0)) as hand:
        hand.write(target, SPANS, lambda count: None)
        pid = pid_of(hand)
        hand.sync(tmp_path / "file")
    del hand
    assert buffer.scribe is not None
    buffer.scribe = None
    gone(pid)


def test_what_waits_ends_with_the_rank_however_that_ends(tmp_path: Path) -> None:
    """Also when a loader's worker that was forked meanwhile lives on, which has all descriptors of
    the rank."""
    command = [warm.python(), "-c", RANK, str(tmp_path / "file")]
    with subprocess.Popen(command, stdout=PIPE) as started:
        assert started.stdout is not None
        rank, worker, waits = map(int, started.stdout.readline().split())
        try:
            assert Path(f"/proc/{waits}").exists()
            os.kill(rank, signal.SIGKILL)
            started.wait(60)
            gone(waits)
            os.kill(worker, 0)
        finally:
            os.kill(worker, signal.SIGKILL)


RANK = """
import os, sys, threading, time
from rankscope.agent.checkpoint.hands import Outside
from rankscope.agent.checkpoint.process import Span
from rankscope.agent.checkpoint.staging import Buffer
buffer = Buffer(1 << 20)
target = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
data = memoryview(buffer.tensor.numpy())
with Outside(buffer, data, threading.Event(), threading.Event(), (1e9, 0, 0)) as hand:
    hand.write(target, [Span(0, 1 << 20, 0)], lambda count: None)
    hand.sync(sys.argv[1])
worker = os.fork()
if worker:
    print(os.getpid(), worker, buffer.scribe.process.pid, flush=True)
time.sleep(600)
"""


def gone(pid: int) -> None:
    """Wait until there is no process ``pid``; a zombie, whose parent has ended, is none."""
    deadline = time.monotonic() + 60
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while ") Z " not in Path(f"/proc/{pid}/stat").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3 * 4096 + 5), st.booleans())
def test_whatever_begins_and_ends_where_it_gets_to_its_place(
    begin_at: int, file_at: int, size: int, paged: bool
) -> None:
    """Where the disk could take it from memory itself, and where it could not; what is around it in
    the file stays."""
    begin, at = (begin_at * 4096, file_at * 4096) if paged else (begin_at * 1000, file_at * 1001)
    with mmap.mmap(-1, 8 * 4096) as memory, tempfile.TemporaryFile() as file:
        memory[:] = bytes(number * 7 % 251 for number in range(len(memory)))
        file.write(b"\xff" * (8 * 4096))
        file.flush()
        view = memoryview(memory)
        with contextlib.closing(scribe.File(file.fileno())) as past:
            past.put(view[begin : begin + size], at, begin)
        found = os.pread(file.fileno(), 8 * 4096, 0)
        assert found[at : at + size] == view[begin : begin + size]
        assert set(found[:at] + found[at + size :]) <= {0xFF}
        view.release()


def test_a_file_that_is_not_to_be_written_past_the_cache_is_written_all_the_same(
    target: int,
) -> None:
    """Some systems open it so and then refuse, which is no fault of the disk."""
    with mmap.mmap(-1, 3 * 4096) as memory:
        memory[:] = bytes(number * 7 % 251 for number in range(len(memory)))
        view = memoryview(memory)
        # Said to begin at a page, and does not: what the system says to that is EINVAL.
        with contextlib.closing(scribe.File(target)) as past:
            past.put(view[1 : 1 + 8192], 0, 0)
        assert os.pread(target, 8192, 0) == view[1 : 1 + 8192]
        view.release()


def test_large_tensors_lie_so_that_the_disk_can_take_them_from_memory() -> None:
    """In the copy and in the file; small ones take no room for it."""
    tensors = {f"t{size}": torch.zeros(size) for size in (7, 100, 1 << 18, (1 << 18) + 1, 1 << 19)}
    staged = Stager().stage(plan(tensors, (), 0, 1))
    spans = {entry.span.size_bytes: entry.span for entry in writing.laid_out(staged.copies)}
    for size, span in spans.items():
        large = size >= 1 << 20
        assert (span.begin % 4096 == 0 and span.at % 4096 == 0) or not large
    assert staged.copies[-1].end < staged.size_bytes + 4 * 4096


def test_the_first_copy_finds_its_memory_mapped() -> None:
    """Training waits for it: a fault for each page takes five times as long as the copy itself."""
    pages = 10_001  # not a whole number of what is mapped at one go
    made = Buffer(pages * mmap.PAGESIZE - 1)
    with mmap.mmap(-1, mmap.PAGESIZE) as probe:
        try:
            probe.madvise(POPULATE_WRITE)
        except OSError:
            pytest.skip("a system that does not know of it")
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    made.tensor.fill_(1)
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before < pages / 10


@pytest.mark.parametrize("refused", [OSError(22, "Invalid argument"), ValueError("unknown")])
def test_where_memory_cannot_be_mapped_at_one_go_it_is_mapped_all_the_same(
    refused: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Older(mmap.mmap):
        def madvise(self, *args: int) -> None:
            raise refused

    monkeypatch.setattr(mmap, "mmap", Older)
    made = Buffer(4 << 20)
    assert made.descriptor >= 0
    made.tensor.fill_(1)


def test_a_small_state_needs_no_other_process() -> None:
    """It is written before one has begun."""
    from rankscope.agent.checkpoint.staging import Staged

    staged = Staged([], Buffer(100), None)
    assert isinstance(hands.hand(staged, threading.Event(), threading.Event()), Inside)


@pytest.mark.parametrize("every_s", [float("inf"), -1.0], ids=["seldom", "always"])
def test_what_is_written_is_told_at_one_go_and_pieces_last(
    every_s: float, target: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each word wakes a thread beside training. All pieces are told of once, and behind the last
    one comes nothing that would be taken for an answer to what is asked next."""
    words: list[str] = []
    monkeypatch.setattr(scribe, "tell", words.append)
    monkeypatch.setattr(scribe, "gone", lambda: False)
    monkeypatch.setattr(scribe, "TELL_EVERY_S", every_s)
    size = 3 * scribe.BLOCK_BYTES
    memory = memoryview(os.urandom(8 * size))
    scribe.Work(memory, target, [(at * size, size, at * size, "-") for at in range(8)]).do()
    lines = [line.split() for told in words for line in told.splitlines()]
    pieces = [line for line in lines if line[0] == "d"]
    assert sorted(int(line[1]) for line in pieces) == list(range(8))
    assert lines[-1][0] == "d"
    assert max(int(line[1]) for line in lines if line[0] == "w") == 8 * size
    if every_s > 0:
        assert len(words) == 1
