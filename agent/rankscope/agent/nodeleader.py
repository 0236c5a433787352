"""Registering with the node's sentinel, and seeing to it that there is one.

Any rank of a node can lead: the one that holds ``leader.lock`` does, and when its process ends
another takes over. The leader starts a sentinel whenever none holds ``sentinel.lock``.
"""

import contextlib
import logging
import os
import signal
import socket
import subprocess
from pathlib import Path

from rankscope.agent import nodedir, ptracer
from rankscope.agent.hublink import HubAddress
from rankscope.agent.identity import Identity
from rankscope.protocol import launch, procs
from rankscope.protocol.exits import UserError

log = logging.getLogger("rankscope")

LOOK_EVERY_S = 2.0
MAX_WAIT_S = 60.0
"""After one error, or one start in vain, after the other it is tried this seldom."""

START_EVERY_S = 5.0
STALE_S = 10.0
"""A sentinel shows every second that it lives. One that has not for so long is stopped or hangs."""


class NodeLeader:
    """Asked by :meth:`tick` from the sending thread; waits for nothing."""

    def __init__(self, address: HubAddress, identity: Identity, calls: int = -1) -> None:
        """``calls`` is the descriptor of this rank's black box (``evidence.blackbox``)."""
        self.address = address
        self._calls = calls
        self.identity = identity
        self._next_s = 0.0
        self._started_s = -START_EVERY_S
        self._start_wait_s = START_EVERY_S
        self._error_wait_s = LOOK_EVERY_S
        self._said = ""
        self._shown: tuple[int, float] | None = None  # its lock file's time, and since when
        self._file: Path | None = None
        self._sentinel: subprocess.Popen[bytes] | None = None
        self._reader_needed = ptracer.is_needed()
        self._reader = 0  # the pid that may read this process's stacks
        self.lock: int | None = None
        """The descriptor of ``leader.lock``; a forked child closes its copy."""

    def tick(self, now: float) -> None:
        if now < self._next_s:
            return
        self._next_s = now + LOOK_EVERY_S
        try:
            self._look(now)
            self._error_wait_s = LOOK_EVERY_S
        except (UserError, OSError) as error:
            # It may pass: too many files open for a while, a folder that is put right again.
            self._next_s = now + self._error_wait_s
            self._error_wait_s = min(MAX_WAIT_S, self._error_wait_s * 2)
            if str(error) != self._said:
                self._said = str(error)
                log.warning("rankscope: no sentinel on this node: %s", error)

    def close(self) -> None:
        if self._sentinel is not None:
            self._sentinel.poll()
            self._sentinel.returncode = self._sentinel.returncode or 0  # it outlives us: no warning
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def _look(self, now: float) -> None:
        directory = nodedir.node_dir(self.address.run)
        if self._file is None or not self._file.exists():
            self._register()
        if self._reader_needed:
            self._let_read(nodedir.sentinel_lock_path(directory))
        leader = nodedir.leader_lock_path(directory)
        if self.lock is not None and not nodedir.is_at(self.lock, leader):
            os.close(self.lock)  # the folder was removed and made again
            self.lock = None
        if self.lock is None:
            self.lock = nodedir.try_lock(leader)
        if self.lock is None:
            return
        if self._sentinel is not None and self._sentinel.poll() is not None:
            self._sentinel = None
        held = nodedir.sentinel_lock_path(directory)
        if nodedir.is_locked(held):
            self._start_wait_s = START_EVERY_S
            self._end_stale(held, now)
        elif self._sentinel is None and now - self._started_s >= self._start_wait_s:
            self._start_wait_s = min(MAX_WAIT_S, self._start_wait_s * 2)
            self._started_s = now
            self._sentinel = start_sentinel(self.address)

    def _end_stale(self, path: Path, now: float) -> None:
        """Kill a sentinel that shows no life, so that another can take its place."""
        changed_ns = path.stat().st_mtime_ns
        if self._shown is None or self._shown[0] != changed_ns:
            self._shown = (changed_ns, now)
        elif now - self._shown[1] >= STALE_S:
            self._shown = None
            pid = _sentinel_of(path)
            if pid is not None:
                log.debug("rankscope: the sentinel %s shows no life: another is started", pid)
                os.kill(pid, signal.SIGKILL)
                self._started_s = now - self._start_wait_s

    def _let_read(self, path: Path) -> None:
        """Whoever is the sentinel now may read this process's stacks."""
        with contextlib.suppress(FileNotFoundError):
            pid = _sentinel_of(path)
            if pid is not None and pid != self._reader and ptracer.allow(pid):
                self._reader = pid

    def _register(self) -> None:
        pid = os.getpid()
        started_s = procs.start_time_s(pid)
        if started_s is not None:
            self._file = nodedir.register(
                nodedir.make_node_dir(self.address.run),
                nodedir.Registration(
                    pid, started_s, self.identity.attempt, self.identity.rank, self._calls
                ),
            )


def _sentinel_of(path: Path) -> int | None:
    """The pid that the lock file ``path`` names, where that is a sentinel that lives."""
    pid, _, started = path.read_text(encoding="ascii").partition(" ")
    with contextlib.suppress(ValueError):
        if procs.is_alive(int(pid), float(started)) and _is_sentinel(int(pid)):
            return int(pid)
    return None


def _is_sentinel(pid: int) -> bool:
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"rankscope.agent.sentinel" in command.split(b"\0")


def start_sentinel(address: HubAddress) -> "subprocess.Popen[bytes]":
    """The node's sentinel; it looks after the hub, too, where an agent of this node started it."""
    options = ["--node-dir", str(nodedir.node_dir(address.run))]
    if address.run_dir and address.host == socket.gethostname():
        options += ["--supervise-hub", address.run_dir]
    return launch.spawn_sentinel(address.key, address.endpoint, *options, run=address.run)
