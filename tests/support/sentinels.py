"""A real sentinel process for tests, and the short-lived processes it watches."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import msgspec

from rankscope.agent import nodedir
from rankscope.agent.nodedir import Registration
from rankscope.protocol.keys import ClientKey
from rankscope.protocol.procs import start_time_s

EXIT_TIMEOUT_S = 60.0


def make_node_dir(base: Path) -> Path:
    """A private node directory below ``base``, as ``nodedir.make_node_dir`` makes it."""
    directory = base / "node"
    for path in (directory, directory / "ranks"):
        path.mkdir(mode=0o700)
    return directory


@contextmanager
def no_sentinel(run: str) -> Iterator[Path]:
    """A TMPDIR in which the node's lock is held, so that no rank starts one.

    Its path is short: loader workers make sockets in it, whose paths end at 107 characters.
    """
    with tempfile.TemporaryDirectory(prefix="rs-") as temporary:
        yield from _locked(Path(temporary), run)


def _locked(temporary: Path, run: str) -> Iterator[Path]:
    node = temporary / f"rankscope-{os.geteuid()}" / run
    (node / "ranks").mkdir(parents=True, mode=0o700)
    for path in (temporary, node.parent, node):
        path.chmod(0o700)
    lock = nodedir.try_lock(nodedir.sentinel_lock_path(node))
    assert lock is not None
    try:
        yield temporary
    finally:
        os.close(lock)


def start_sentinel(
    directory: Path | None, endpoint: str, key: ClientKey, *more: str, **environ: str
) -> "subprocess.Popen[bytes]":
    """Start one as an agent does: own session, key on stdin; without a directory, as a launcher."""
    command = [sys.executable, "-W", "error", "-m", "rankscope.agent.sentinel"]
    command += ["--run", key.run, "--endpoint", endpoint, *more]
    if directory is not None:
        command += ["--node-dir", str(directory)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, **environ},
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(key))
    process.stdin.close()
    return process


@contextmanager
def sentinel(
    directory: Path | None, endpoint: str, key: ClientKey, *more: str, **environ: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """A sentinel that is gone at the end; a traceback on its stderr fails the test."""
    process = start_sentinel(directory, endpoint, key, *more, **environ)
    try:
        yield process
    finally:
        said = stop(process)
    assert "Traceback" not in said, said


def stop(process: "subprocess.Popen[bytes]") -> str:
    """End ``process`` and give back what it wrote on stderr."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
    assert process.stderr is not None
    with process.stderr:
        return process.stderr.read().decode()


_LAUNCHER = """
import json, os, subprocess, sys, threading
eager = sys.argv[1] == "eager"
children = []
for line in sys.stdin:
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", json.loads(line)], stdout=subprocess.PIPE
    )
    child.stdout.readline()
    children.append(child)
    print(child.pid, flush=True)
    if eager:
        threading.Thread(target=child.wait, daemon=True).start()
for child in children:
    child.kill()
    child.wait()
"""

_RANK = """
import os, signal
signal.signal(signal.SIGUSR1, lambda *_: os._exit({exit_code}))
print("ready", flush=True)
while True:
    signal.pause()
"""


class Launcher:
    """Ranks that are no children of the test or of the sentinel: a parent is in between.

    It reaps them the moment they end, unless ``reap`` is False. SIGUSR1 makes a rank end with the
    exit code that it was started with.
    """

    def __init__(self, *, reap: bool = True) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCHER, "eager" if reap else "lazy"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """End all ranks that are left."""
        self._process.communicate(timeout=EXIT_TIMEOUT_S)

    def start(self, exit_code: int = 0) -> int:
        """Start a rank; its pid once it waits for signals."""
        return self.run(_RANK.format(exit_code=exit_code))

    def run(self, code: str) -> int:
        """Start a process that runs ``code``, which prints one line when it is ready."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(code).encode() + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def register(self, directory: Path, rank: int, attempt: int = 0, exit_code: int = 0) -> int:
        """Start a rank and register it, as its agent would; its pid."""
        pid = self.start(exit_code)
        register(directory, pid, rank, attempt)
        return pid


def register(directory: Path, pid: int, rank: int, attempt: int = 0) -> None:
    """Register a process that lives."""
    started_s = start_time_s(pid)
    assert started_s is not None
    nodedir.register(directory, Registration(pid, started_s, attempt, rank))
