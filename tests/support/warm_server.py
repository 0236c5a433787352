"""The server of ``warm.py``: imports torch, then forks once for each program to be run.

A fork becomes that program as if Python had been started with it: streams, environment, folder,
``sys.argv``, ``sys.path`` and ``__main__`` are the program's, and it ends as any interpreter does.
"""

import array
import builtins
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any, NoReturn

MODULES = (
    *("numpy", "psutil", "msgspec", "msgpack", "zmq", "platformdirs", "torch", "torch._dynamo"),
    *("torch.distributed.run", "torch.distributed.tensor", "torch.distributed.fsdp"),
    *("torch.distributed.checkpoint.state_dict", "torch.distributed.elastic.multiprocessing.api"),
    *("torch.distributed.algorithms.ddp_comm_hooks.default_hooks", "torch.nn.parallel"),
    *("torch.distributed.device_mesh", "torch.utils.data", "torch.utils.checkpoint"),
)
"""What takes long to import; nothing of rankscope's own."""

REAPED_AFTER_S = 0.2
"""Forks stay zombies for so long, as ranks do of which torchrun looks after every 0.1 s: how they
ended is read from that."""

Request = dict[str, Any]


class Server:
    """Runs until its stdin ends; then no fork is left."""

    def __init__(self, descriptor: int, folder: str) -> None:
        self.listener = socket.socket(fileno=descriptor)
        self.folder = Path(folder)
        """Has a file for each fork that lives: named by its pid, with its RANKSCOPE_HOME in it."""
        self.selector = selectors.DefaultSelector()
        self.forks: dict[socket.socket, tuple[int, int]] = {}
        """Client to the pid and the pidfd of its fork."""
        self.unreaped: list[tuple[float, int]] = []
        """When forks ended, and their pids."""

    def serve(self) -> Request:
        """Returns in forks alone, with the program to be run."""
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            ready = self.selector.select(REAPED_AFTER_S if self.unreaped else None)
            self.reap(time.monotonic() - REAPED_AFTER_S)
            for key, _ in ready:
                if key.fileobj is sys.stdin:
                    self.end()
                elif key.fileobj is self.listener:
                    request = self.accept()
                    if request is not None:
                        return request
                elif isinstance(key.fileobj, int):
                    self.ended(key.data)
                else:
                    self.hear(key.data)

    def end(self) -> NoReturn:
        for client in list(self.forks):
            self.kill(client)
        shutil.rmtree(self.folder.parent, ignore_errors=True)
        os._exit(0)

    def accept(self) -> Request | None:
        client, _ = self.listener.accept()
        client.settimeout(30)
        try:
            request, streams = read(client)
        except (OSError, ValueError):
            client.close()
            return None
        pid = os.fork()
        if not pid:
            self.leave(client)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return request
        for stream in streams:
            os.close(stream)
        (self.folder / str(pid)).write_text(request["environ"].get("RANKSCOPE_HOME", ""))
        pidfd = os.pidfd_open(pid)
        self.forks[client] = pid, pidfd
        self.selector.register(client, selectors.EVENT_READ, client)
        self.selector.register(pidfd, selectors.EVENT_READ, client)
        return None

    def leave(self, client: socket.socket) -> None:
        """In a fork: nothing of the server stays open."""
        os.setsid()
        self.selector.close()
        self.listener.close()
        client.close()
        for other, (_, pidfd) in self.forks.items():
            other.close()
            os.close(pidfd)
        self.forks.clear()

    def hear(self, client: socket.socket) -> None:
        """Signals for the fork, or the end of its client, who was killed."""
        if client not in self.forks:  # it has ended since the selector was asked
            return
        try:
            signals = client.recv(64)
        except OSError:
            signals = b""
        if not signals:
            self.kill(client)
            self.ended(client)
            return
        for number in signals:
            os.kill(self.forks[client][0], number)

    def kill(self, client: socket.socket) -> None:
        pid = self.forks[client][0]
        os.kill(pid, signal.SIGKILL)  # it may have no group of its own yet
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)

    def ended(self, client: socket.socket) -> None:
        """The fork ended: tell its client how."""
        if client not in self.forks:
            return
        pid, pidfd = self.forks.pop(client)
        how = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert how is not None
        code = how.si_status if how.si_code == os.CLD_EXITED else -how.si_status
        self.unreaped.append((time.monotonic(), pid))
        (self.folder / str(pid)).unlink(missing_ok=True)
        self.selector.unregister(pidfd)
        self.selector.unregister(client)
        os.close(pidfd)
        with contextlib.suppress(OSError):
            client.sendall(code.to_bytes(4, "big", signed=True))
        client.close()

    def reap(self, before_s: float) -> None:
        """Those that ended by then."""
        while self.unreaped and self.unreaped[0][0] <= before_s:
            os.waitpid(self.unreaped.pop(0)[1], 0)


def read(client: socket.socket) -> tuple[Request, list[int]]:
    """What a client wants to be run, and its standard streams."""
    head, ancillary, _, _ = client.recvmsg(4, socket.CMSG_SPACE(3 * 4))
    streams = array.array("i")
    for _, _, content in ancillary:
        streams.frombytes(content[: len(content) // 4 * 4])
    if len(head) < 4 or len(streams) != 3:
        raise ValueError("no request")
    size, request = int.from_bytes(head, "big"), b""
    while len(request) < size:
        part = client.recv(size - len(request))
        if not part:
            raise ValueError("cut short")
        request += part
    found: Request = json.loads(request.decode("utf-8", "surrogateescape"))
    return found, list(streams)


def become(request: Request) -> None:
    """Run the program as Python would."""
    parent: int = request["parent"]
    os.getppid = lambda: parent  # what a rank takes for its launcher
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["cwd"])
    tempfile.tempdir = None  # some import has asked for it
    argv: list[str] = request["argv"]
    if argv[:1] == ["-u"]:
        argv = argv[1:]
        os.environ["PYTHONUNBUFFERED"] = "1"
    if os.environ.get("PYTHONUNBUFFERED"):
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    added = [path for path in os.environ.get("PYTHONPATH", "").split(":") if path]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __spec__=None, __annotations__={})
    if argv[0] == "-m":
        sys.argv = argv[1:]
        sys.path[0:1] = [request["cwd"], *added]
        sys.modules.pop(argv[1], None)
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    elif argv[0] == "-c":
        sys.argv = ["-c", *argv[2:]]
        sys.path[0:1] = ["", *added]
        exec(compile(argv[1], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = argv
        sys.path[0:1] = [os.path.dirname(os.path.abspath(argv[0])), *added]  # noqa: PTH100, PTH120
        main.__file__ = argv[0]
        with open(argv[0], "rb") as file:  # noqa: PTH123
            code = compile(file.read(), argv[0], "exec")
        exec(code, main.__dict__)


if __name__ == "__main__":
    server = Server(int(sys.argv[1]), sys.argv[2])
    for module in MODULES:
        if select.select([sys.stdin], [], [], 0)[0]:  # whoever wanted it has ended already
            server.end()
        importlib.import_module(module)
    deadline = time.monotonic() + 30  # one that has ended is in the list a moment longer
    while len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
        if time.monotonic() > deadline:
            sys.exit("a fork of a process with threads is no sound process")
        time.sleep(0.01)
    gc.collect()
    gc.freeze()
    become(server.serve())
