"""Stacks of a rank's process, read from outside by the sentinel."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rankscope.agent.nodedir import Registration
from rankscope.agent.sentinel import pyspy
from rankscope.agent.sentinel.foreign import Reader
from rankscope.protocol.messages import ForeignStacks, Inquire
from rankscope.protocol.procs import start_time_s
from support.noderouter import NodeRouter
from support.sentinels import Launcher, make_node_dir, register, sentinel
from support.wire import wait_until

HOLDS_THE_GIL = """
import ctypes, threading
def wait_in_c():
    lock = ctypes.PyDLL(None).pthread_mutex_lock
    mutex = ctypes.create_string_buffer(64)
    lock(mutex)
    print("ready", flush=True)
    lock(mutex)
threading.Thread(target=threading.Event().wait, name="helper", daemon=True).start()
wait_in_c()
"""

WAITS = """
import threading
print("ready", flush=True); threading.Event().wait()
"""


def asked(hub: NodeRouter, rank: int) -> list[ForeignStacks]:
    """Ask once more; what came so far."""
    hub.say(Inquire(rank, ("foreign_stacks",)))
    return [one for one in hub.all(ForeignStacks) if one.rank == rank]


@pytest.mark.processes
def test_the_line_of_a_rank_that_holds_the_gil_is_read_from_outside(tmp_path: Path) -> None:
    """Python frames first, without stopping it; then native ones, as it stays where it is."""
    directory = make_node_dir(tmp_path)
    with (
        NodeRouter() as hub,
        Launcher() as launcher,
        sentinel(directory, hub.endpoint, hub.key),
    ):
        pid = launcher.run(HOLDS_THE_GIL)
        wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_SLEEPING, "the lock")
        register(directory, pid, 3)
        hub.wait_for_state(3, "alive")
        hub.wait_for(lambda: [one for one in asked(hub, 3) if one.native])
        first, native = hub.all(ForeignStacks)[0], [o for o in hub.all(ForeignStacks) if o.native]
        assert not first.native
        for one in (first, native[0]):
            assert (one.pid, one.attempt, one.error) == (pid, 0, "")
            assert one.source == "<string>:8 in wait_in_c"
            main, helper = one.threads
            assert (main.main, main.holds_gil) == (True, True)
            assert (helper.name, helper.main, helper.holds_gil) == ("helper", False, False)
        assert first.threads[0].frames[0].function == "wait_in_c"
        functions = [frame.function for frame in native[0].threads[0].frames]
        assert "pthread_mutex_lock" in functions[: functions.index("wait_in_c")]


@pytest.mark.processes
def test_a_stopped_rank_is_read_and_stays_stopped(tmp_path: Path) -> None:
    """Reading neither wakes it nor makes it look alive."""
    directory = make_node_dir(tmp_path)
    with (
        NodeRouter() as hub,
        Launcher() as launcher,
        sentinel(directory, hub.endpoint, hub.key),
    ):
        pid = launcher.run(WAITS)
        register(directory, pid, 0)
        os.kill(pid, signal.SIGSTOP)
        hub.wait_for_state(0, "stopped")
        found = hub.wait_for(lambda: asked(hub, 0))[0]
        assert (found.error, found.source) == ("", "<string>:3 in <module>")
        hub.wait_for(lambda: len(hub.all(ForeignStacks)) > 1 or asked(hub, 0)[1:])
        hub.wait_for_state(0, "stopped")
        assert "\nState:\tT" in Path(f"/proc/{pid}/status").read_text()


@pytest.mark.processes
def test_a_rank_of_another_node_and_one_that_ended_are_not_read(tmp_path: Path) -> None:
    """Whoever does not know what is asked stays silent."""
    directory = make_node_dir(tmp_path)
    with (
        NodeRouter() as hub,
        Launcher() as launcher,
        sentinel(directory, hub.endpoint, hub.key),
    ):
        pid = launcher.register(directory, 0)
        hub.wait_for_state(0, "alive")
        os.kill(pid, signal.SIGKILL)
        hub.wait_for_death(0)
        hub.say(Inquire(0, ("foreign_stacks",)))
        hub.say(Inquire(7, ("foreign_stacks",)))
        hub.say(Inquire(0, ("stacks", "nonsense")))
        count = len(hub.reports())
        hub.wait_for(lambda: len(hub.reports()) > count + 1)
        assert not hub.all(ForeignStacks)


@pytest.fixture
def reader(request: pytest.FixtureRequest) -> Iterator[Reader]:
    spy: str | None = request.param
    made = Reader(lambda: spy)
    yield made
    made.close()


def this_process() -> Registration:
    started_s = start_time_s(os.getpid())
    assert started_s is not None
    return Registration(os.getpid(), started_s, 0, 0)


@pytest.mark.parametrize(
    ("reader", "says"),
    [(None, "pip install py-spy"), ("/nowhere/py-spy", "cannot start"), (sys.executable, "py-spy")],
    indirect=["reader"],
)
def test_why_there_are_no_stacks_is_said_in_words(reader: Reader, says: str) -> None:
    """A missing program and one that fails make no traceback, and the answer says what to do."""
    reader.ask(this_process(), 0.0)
    found = wait_until(reader.found)[0]
    assert found.reading is None
    assert says in found.error
    assert says in found.message("node", 1, 0.0).error


def test_the_same_rank_is_read_at_most_once_a_second() -> None:
    """However often it is asked for."""
    calls: list[int] = []

    def spy() -> str | None:
        calls.append(1)
        return None

    reader = Reader(spy)
    try:
        for now in (0.0, 0.1, 0.9, 1.1, 1.2):
            reader.ask(this_process(), now)
            found = 1 if now < 1.0 else 2
            wait_until(lambda: len(calls) >= found)  # noqa: B023
        assert len(calls) == 2
    finally:
        reader.close()


def spied(*threads: dict[str, object]) -> bytes:
    return json.dumps(list(threads)).encode()


def frame(name: str, filename: str, line: int = 1, module: str | None = None) -> dict[str, object]:
    return {"name": name, "filename": filename, "line": line, "module": module, "extra": None}


def test_native_frames_hide_no_line_of_the_users() -> None:
    """The source is a line of Python, also below frames of C, and is called as tracebacks do."""
    raw = spied(
        {"thread_name": "rankscope", "os_thread_id": 12, "frames": []},
        {"thread_name": "a", "os_thread_id": 11, "owns_gil": True, "frames": []},
        {
            "thread_name": "MainThread",
            "os_thread_id": 10,
            "frames": [
                frame("at::native::add", "/lib/libtorch_cpu.so", 0, "/lib/libtorch_cpu.so"),
                frame("Thread.join", os.__file__.replace("os.py", "threading.py"), 99),
                frame("Net.fit.<locals>.inner", "/home/me/train.py", 7),
            ],
        },
    )
    reading = pyspy.parse(raw, 10)
    assert reading is not None
    assert reading.source == "train.py:7 in inner"
    assert [one.name for one in reading.threads] == ["MainThread", "a"]
    assert [one.holds_gil for one in reading.threads] == [False, True]
    assert reading.threads[0].frames[1].function == "join"


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b"[1]", b'[{"frames": 3}]', b"\xff"])
def test_what_is_no_dump_is_no_reading(raw: bytes) -> None:
    """A py-spy of another version, or one that was cut short, breaks nothing."""
    assert pyspy.parse(raw, 1) is None


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Error: Permission Denied: Try running again with sudo", "SYS_PTRACE"),
        ("Error: Failed\n\nCaused by:\n    0: Operation not permitted (os error 1)", "SYS_PTRACE"),
        ("Error: Failed to get process executable name. Check that …", "has ended"),
        ("Error: Failed to find python\n\nCaused by:\n    0: why", "Failed to find python; why"),
        (
            "Error: Failed to find a python interpreter in the .data section\n\n"
            "Stack backtrace:\n   0: anyhow::error::<impl anyhow::Error>::msg\n   1: py_spy::dump",
            "it is ending",
        ),
        (
            "Error: Odd\n\nCaused by:\n    0: why\n    1: anyhow::error::msg\n    2: _start",
            "py-spy: Odd; why",
        ),
        ("Error: " + "long " * 90, "long"),
        ("", "said nothing"),
    ],
)
def test_what_py_spy_complains_of_becomes_one_line(said: str, words: str) -> None:
    """With what to change, where that is known."""
    text = pyspy.error_in_words(said)
    assert words in text
    assert "\n" not in text
    assert "anyhow" not in text
    assert len(text) <= 160
