"""Starting hubs and sentinels: the one way in which launcher, agents and sentinels do it.

``python -m rankscope.hub --run-dir DIR [--bind ADDRESS] [--port N]`` takes its lock, binds (the
endpoint of ``run.json`` again, where there is one), writes itself into ``run.json`` and serves. It
exits 2 with one line on stderr when it cannot.
"""

import contextlib
import subprocess
import sys
import time

import msgspec

from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.files import append_private
from rankscope.protocol.keys import ClientKey
from rankscope.protocol.rundir import RunDirectory, RunInfo

START_TIMEOUT_S = 20.0
POLL_S = 0.02


def python_module(module: str) -> list[str]:
    """The command line that runs one of our modules with this interpreter.

    ``-P`` keeps the working directory off the module path: a user's ``signal.py`` beside the
    training script must not become the hub's.
    """
    return [sys.executable, "-P", "-m", module]


def spawn_hub(
    directory: RunDirectory, *, bind: str | None = None, port: int | None = None
) -> "subprocess.Popen[bytes]":
    """Start the hub process in a session of its own, its output in ``hub.log``."""
    command = [*python_module("rankscope.hub"), "--run-dir", str(directory.path)]
    if bind is not None:
        command += ["--bind", bind]
    if port is not None:
        command += ["--port", str(port)]
    with append_private(directory.log) as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            close_fds=True,
        )


def spawn_sentinel(
    key: ClientKey, endpoint: str, *options: str, run: str | None = None
) -> "subprocess.Popen[bytes]":
    """Start this node's sentinel in a session of its own; its key goes through standard input.

    Where there is one already, this one ends at once. Raises :class:`OSError`.
    """
    command = [*python_module("rankscope.agent.sentinel"), "--run", run or key.run]
    sentinel = subprocess.Popen(
        [*command, "--endpoint", endpoint, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        close_fds=True,
    )
    assert sentinel.stdin is not None
    with contextlib.suppress(BrokenPipeError), sentinel.stdin:
        sentinel.stdin.write(msgspec.json.encode(key) + b"\n")
    return sentinel


def wait_for_hub(
    directory: RunDirectory, hub: "subprocess.Popen[bytes]", timeout_s: float = START_TIMEOUT_S
) -> RunInfo:
    """``run.json`` once ``hub`` has written itself into it.

    Raises :class:`UserError` with the hub's own last words when it ends instead, or when it takes
    longer than ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        info = directory.read_info()
        if info.hub is not None and info.hub.pid == hub.pid:
            return info
        if hub.poll() is not None:
            raise UserError(f"the hub did not start: {last_log_line(directory)}")
        time.sleep(POLL_S)
    hub.kill()
    hub.wait()
    raise UserError(
        f"the hub did not start within {timeout_s:.0f} s; see {directory.log}", Exit.TIMED_OUT
    )


def last_log_line(directory: RunDirectory) -> str:
    """The last line of ``hub.log``, for an error message."""
    try:
        lines = directory.log.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    return lines[-1].strip() if lines else f"no word in {directory.log}"
