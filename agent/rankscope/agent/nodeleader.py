"""Registering with the node's sentinel, and seeing to it that there is one.

Any rank of a node can lead: the one that holds ``leader.lock`` does, and when its process ends
another takes over. The leader starts a sentinel whenever none holds ``sentinel.lock``.
"""

import contextlib
import logging
import os
import socket
import subprocess
from pathlib import Path

import msgspec

from rankscope.agent import nodedir
from rankscope.agent.hublink import HubAddress
from rankscope.agent.identity import Identity
from rankscope.protocol import launch, procs
from rankscope.protocol.exits import UserError

log = logging.getLogger("rankscope")

LOOK_EVERY_S = 2.0
START_EVERY_S = 5.0
MAX_STARTS = 10
"""A sentinel that cannot live here is not started for ever."""


class NodeLeader:
    """Asked by :meth:`tick` from the sending thread; waits for nothing."""

    def __init__(self, address: HubAddress, identity: Identity) -> None:
        self.address = address
        self.identity = identity
        self._next_s = 0.0
        self._started_s = -START_EVERY_S
        self._starts = 0
        self._off = False
        self._file: Path | None = None
        self._sentinel: subprocess.Popen[bytes] | None = None
        self.lock: int | None = None
        """The descriptor of ``leader.lock``; a forked child closes its copy."""

    def tick(self, now: float) -> None:
        if self._off or now < self._next_s:
            return
        self._next_s = now + LOOK_EVERY_S
        try:
            self._look(now)
        except (UserError, OSError) as error:
            self._off = True
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
        if self.lock is None:
            self.lock = nodedir.try_lock(nodedir.leader_lock_path(directory))
        if self._sentinel is not None and self._sentinel.poll() is not None:
            self._sentinel = None
        if (
            self.lock is not None
            and self._sentinel is None
            and self._starts < MAX_STARTS
            and now - self._started_s >= START_EVERY_S
            and not nodedir.is_locked(nodedir.sentinel_lock_path(directory))
        ):
            self._starts += 1
            self._started_s = now
            self._sentinel = start_sentinel(self.address)

    def _register(self) -> None:
        pid = os.getpid()
        started_s = procs.start_time_s(pid)
        if started_s is not None:
            self._file = nodedir.register(
                nodedir.make_node_dir(self.address.run),
                nodedir.Registration(pid, started_s, self.identity.attempt, self.identity.rank),
            )


def start_sentinel(address: HubAddress) -> "subprocess.Popen[bytes]":
    """The node's sentinel, in a session of its own; the key goes through its standard input."""
    command = [*launch.python_module("rankscope.agent.sentinel"), "--run", address.run]
    command += ["--node-dir", str(nodedir.node_dir(address.run)), "--endpoint", address.endpoint]
    if address.run_dir and address.host == socket.gethostname():
        command += ["--supervise-hub", address.run_dir]
    sentinel = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        close_fds=True,
    )
    assert sentinel.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        sentinel.stdin.write(msgspec.json.encode(address.key) + b"\n")
        sentinel.stdin.close()
    return sentinel
