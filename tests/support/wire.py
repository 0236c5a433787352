"""A real hub process for a fresh run, and plain peers that talk to it with a role's key.

with hub_process(tmp_path) as hub, hub.connect("agent") as rank, hub.connect("viewer") as client:
    rank.send(messages.Hello(...))
    status = client.view("status")
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
import zmq

from rankscope.protocol import codec, keys, launch, limits, rundir, shapes
from rankscope.protocol import messages as m

Found = TypeVar("Found")
PATIENCE_S = 60.0
"""How long a test waits for what must happen before it fails."""


def wait_until(
    condition: Callable[[], Found | None],
    what: str = "the condition",
    timeout_s: float = PATIENCE_S,
    every_s: float = 0.01,
) -> Found:
    """The first true value of ``condition``; an assertion error once the deadline has passed."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what} did not come within {timeout_s:.0f} s"
        time.sleep(every_s)


class Peer:
    """One DEALER that speaks with one key. Closed by ``with``."""

    def __init__(self, endpoint: str, key: keys.ClientKey) -> None:
        self.context = zmq.Context(io_threads=1)
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 200
        self.socket.maxmsgsize = limits.MAX_REPLY_FRAME_BYTES
        self.socket.reconnect_ivl = 50
        self.socket.curve_serverkey = key.hub_public.encode()
        self.socket.curve_publickey = key.public.encode()
        self.socket.curve_secretkey = key.secret.encode()
        self.socket.connect(endpoint)
        self.requests = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self, linger_ms: int = 200) -> None:
        self.socket.close(linger=linger_ms)
        self.context.term()

    def send(self, message: m.Message) -> None:
        self.send_bytes(codec.encode(message))

    def send_bytes(self, *parts: bytes) -> None:
        self.socket.send_multipart(list(parts), flags=zmq.NOBLOCK)

    def receive(self, timeout_s: float = PATIENCE_S) -> m.Message | None:
        """The next message from the hub, None when none comes in time."""
        if not self.socket.poll(int(timeout_s * 1000)):
            return None
        return codec.decode(self.socket.recv(), limits.MAX_REPLY_FRAME_BYTES)

    def receive_kind(self, kind: type[Found], timeout_s: float = PATIENCE_S) -> Found:
        """The next message of type ``kind``; others are passed over."""
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = deadline - time.monotonic()
            message = self.receive(max(0.0, left_s))
            if isinstance(message, kind):
                return message
            assert left_s > 0, f"no {kind.__name__} within {timeout_s:.0f} s"

    def ping(self, timeout_s: float = PATIENCE_S) -> m.Pong:
        self.send(m.Ping(time.monotonic()))
        return self.receive_kind(m.Pong, timeout_s)

    def ask(
        self, view: str, since: int = 0, timeout_s: float = PATIENCE_S, **args: int | str
    ) -> m.ViewReply:
        """The hub's reply to one view request."""
        self.requests += 1
        self.send(m.ViewRequest(self.requests, view, since, args))
        while True:
            reply = self.receive_kind(m.ViewReply, timeout_s)
            if reply.request == self.requests:
                return reply

    def view(self, view: str, timeout_s: float = PATIENCE_S, **args: int | str) -> Any:
        """The whole view as its shape (``Status`` for ``status``, …)."""
        reply = self.ask(view, 0, timeout_s, **args)
        assert not reply.error, reply.error
        return msgspec.msgpack.decode(reply.body, type=shapes.VIEWS[view])

    def status(self) -> shapes.Status:
        status = self.view("status")
        assert isinstance(status, shapes.Status)
        return status

    def command(self, command: str, **args: int | str) -> m.CommandReply:
        self.requests += 1
        self.send(m.CommandRequest(self.requests, command, "test", args))
        return self.receive_kind(m.CommandReply)

    def wait_for_view(
        self, view: str, condition: Callable[[Any], Any], timeout_s: float = PATIENCE_S
    ) -> Any:
        """The first ``view`` for which ``condition`` holds."""
        last: list[Any] = [None]

        def look() -> Any:
            last[0] = self.view(view)
            return last[0] if condition(last[0]) else None

        try:
            return wait_until(look, f"the {view} asked for", timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; the last one was {last[0]}") from None


class Hub:
    """A hub process and its run directory."""

    def __init__(self, directory: rundir.RunDirectory, options: tuple[str, ...]) -> None:
        self.directory = directory
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None
        self.info = directory.read_info()

    def start(self) -> None:
        """Start the hub (again), and wait until it serves."""
        self.process = spawn(self.directory, *self.options)
        self.info = launch.wait_for_hub(self.directory, self.process, PATIENCE_S)

    @property
    def endpoint(self) -> str:
        assert self.info.endpoint is not None
        return self.info.endpoint

    def connect(self, role: keys.Role) -> Peer:
        return Peer(self.endpoint, self.directory.read_key(role))

    def kill(self) -> None:
        """``kill -9``, and wait until it is gone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self, timeout_s: float = PATIENCE_S) -> int:
        """``kill -TERM``; its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout_s)

    def log(self) -> str:
        return self.directory.log.read_text(errors="replace")


def spawn(directory: rundir.RunDirectory, *options: str) -> "subprocess.Popen[bytes]":
    """``python -m rankscope.hub`` with further options, its output in ``hub.log``."""
    with directory.log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "rankscope.hub", "--run-dir", str(directory.path), *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def new_run(home: Path, run: str = "run-1") -> rundir.RunDirectory:
    """A fresh run directory below ``home``/runs."""
    return rundir.create(
        home / "runs", run, command=["python", "train.py"], name="test", now_s=time.time()
    )


@contextmanager
def hub_process(home: Path, *options: str, run: str = "run-1") -> Iterator[Hub]:
    """A hub for a fresh run directory below ``home``/runs, ended with the block."""
    hub = Hub(new_run(home, run), options)
    try:
        hub.start()
        yield hub
    finally:
        if hub.process is not None and hub.process.poll() is None:
            hub.process.terminate()
            try:
                hub.process.wait(PATIENCE_S)
            except BaseException:
                hub.process.kill()
                hub.process.wait()
                raise
