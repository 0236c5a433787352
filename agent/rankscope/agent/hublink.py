"""Finding this run's hub, and starting one where that falls to this rank.

Asked again and again by the sending thread; never by the training thread, and no call waits for
another rank. In this order:

1. the environment that ``rankscope run`` has set;
2. on the launcher's own node, the pointer that an earlier rank or attempt of the same launcher
   left (a later attempt goes on in the same run);
3. torch's own store, under ``rankscope/``, where whoever has the address has written it;
4. rank 0 starts a hub of its own. When no rank 0 is attached, another rank does so after a while.
"""

import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from rankscope.agent import frames, nodedir, storereach
from rankscope.agent.identity import Identity
from rankscope.protocol import env, keys, launch, procs, rundir
from rankscope.protocol.exits import UserError
from rankscope.protocol.files import read_private, write_private
from rankscope.protocol.pasting import named, words_for

log = logging.getLogger("rankscope")

STORE_PREFIX = "rankscope"
STORE_KEY = "address"
STORE_POLL_S = (0.2, 2.0)
"""The store is asked this often: at first, and in the long run."""

STAND_IN_AFTER_S = 15.0
"""When there is no hub this long after torch's store is there, a rank other than 0 starts one."""

MAX_POINTER_BYTES = 4096


class HubAddress(msgspec.Struct, frozen=True):
    """All it takes to reach a hub."""

    run: str
    endpoint: str
    key: keys.ClientKey
    host: str = ""
    """The machine on which an agent started the hub; empty when a launcher did."""
    run_dir: str = ""
    """The run directory on that machine."""

    def __repr__(self) -> str:
        return f"HubAddress(run={self.run!r}, endpoint={self.endpoint!r})"


class _Pointer(msgspec.Struct, frozen=True):
    run_dir: str


class HubFinder:
    """Asked by :meth:`poll` until it has an answer."""

    def __init__(
        self, identity: Identity, name: str, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.identity = identity
        self.name = name
        self.environ = environ
        self.host = socket.gethostname()
        self.address: HubAddress | None = None
        self.hub: subprocess.Popen[bytes] | None = None
        self._directory: rundir.RunDirectory | None = None
        self._made: rundir.RunDirectory | None = None
        self._store: Any = None
        self._store_since_s: float | None = None
        self._next_look_s = 0.0
        self._wait_s = STORE_POLL_S[0]
        self._published = False
        self._gave_up = False

    def poll(self, now: float) -> HubAddress | None:
        """The address, or None as long as there is none."""
        if self.address is None and not self._gave_up:
            try:
                self.address = self._from_environ() or self._look(now)
            except UserError as error:
                self._gave_up = True
                log.warning("rankscope: training goes on unwatched: %s", error)
        if self.address is not None and not self._published and self.identity.world_size > 1:
            self._publish(now)
        return self.address

    @property
    def starting(self) -> rundir.RunDirectory | None:
        """The run directory of a hub of our own that is not up yet."""
        return self._directory if self.address is None and self.hub is not None else None

    def reap(self) -> None:
        """Take note of a hub of our own that has ended, so that no zombie remains."""
        if self.hub is not None and self.hub.poll() is not None:
            self.hub = None

    # where an address may come from

    def _from_environ(self) -> HubAddress | None:
        try:
            return _read_environ(self.environ)
        except UserError:
            # On a node without the launcher's disk the address comes through the store.
            if self.identity.world_size == 1 or self.identity.rank == 0:
                raise
            return None

    def _look(self, now: float) -> HubAddress | None:
        if self._directory is not None:  # a hub of our own is starting
            return self._started()
        if now < self._next_look_s:
            return None
        pointed = self._from_pointer()
        if pointed is not None:
            return pointed
        if self._directory is not None:
            return None
        stored = self._from_store(now)
        if stored is not None:
            return stored
        if self.identity.rank == 0 or (
            self._store_since_s is not None and now - self._store_since_s > STAND_IN_AFTER_S
        ):
            self._start()
            return None
        self._next_look_s = now + self._wait_s
        self._wait_s = min(STORE_POLL_S[1], self._wait_s * 1.3)
        return None

    def _from_pointer(self) -> HubAddress | None:
        path = pointer_path(self.environ)
        if path is None or not path.exists():
            return None
        with contextlib.suppress(UserError, msgspec.DecodeError, OSError):
            nodedir.check_private_dir(path.parent)
            pointer = msgspec.json.decode(
                read_private(path, MAX_POINTER_BYTES, "run pointer"), type=_Pointer
            )
            directory = rundir.RunDirectory(Path(pointer.run_dir))
            directory.check()
            info = directory.read_info()
            if rundir.hub_is_alive(info):
                return self._address_of(directory, info)
            if self.identity.rank == 0:  # the launcher's ranks outlived their hub
                self.hub = launch.spawn_hub(directory)
                self._directory = directory
        return None

    def _from_store(self, now: float) -> HubAddress | None:
        store = self._open_store(now)
        if store is None:
            return None
        try:
            if not store.check([STORE_KEY]):
                return None
            return msgspec.json.decode(store.get(STORE_KEY), type=HubAddress)
        except (RuntimeError, msgspec.DecodeError) as error:
            log.debug("rankscope: torch's store: %s", error)
            self._store = None
            return None

    def _open_store(self, now: float) -> Any:
        """A connection of our own to torch's store: a wait on the shared one would hold it up."""
        if self._store is None:
            distributed = sys.modules.get("torch.distributed")
            if (
                distributed is None
                or not distributed.is_available()
                or not distributed.is_initialized()
            ):
                return None
            try:
                shared = distributed.distributed_c10d._get_default_store()
                storereach.check(shared)
                self._store = distributed.PrefixStore(STORE_PREFIX, shared.clone())
            except (OSError, RuntimeError, AttributeError, ValueError) as error:
                log.debug("rankscope: torch's store: %s", error)
                return None
            if self._store_since_s is None:
                self._store_since_s = now
        return self._store

    # a hub of our own

    def _start(self) -> None:
        home = rundir.runs_home(self.environ)
        now_s = time.time()
        if self._made is None:  # else the hub itself could not be started a moment ago
            command = frames.mended(list(sys.argv))
            self._made = rundir.create(
                home, rundir.new_run_id(now_s), command=command, name=self.name, now_s=now_s
            )
        directory = self._made
        path = pointer_path(self.environ)
        if path is not None:
            nodedir.make_private_dir(path.parent)
            nodedir.forget_launchers_gone()
            write_private(path, msgspec.json.encode(_Pointer(str(directory.path))) + b"\n")
        self.hub = launch.spawn_hub(directory)
        self._directory = directory

    def _started(self) -> HubAddress | None:
        assert self._directory is not None
        info = self._directory.read_info()
        if rundir.hub_is_alive(info):
            address = self._address_of(self._directory, info)
            seen = named("rankscope top", words_for(self._directory.path))
            print(
                f"rankscope: watching this run; to see it: {seen}",
                file=sys.stderr,
                flush=True,
            )
            return address
        if self.hub is not None and self.hub.poll() is not None:
            self.hub = None
            raise UserError(f"the hub did not start: {launch.last_log_line(self._directory)}")
        return None

    def _address_of(self, directory: rundir.RunDirectory, info: rundir.RunInfo) -> HubAddress:
        if info.endpoint is None:
            raise UserError(f"{directory.info_path} names no endpoint")
        return HubAddress(
            directory.run,
            info.endpoint,
            directory.read_key("agent"),
            self.host,
            str(directory.path),
        )

    def _publish(self, now: float) -> None:
        """Leave the address in torch's store, unless one is there already."""
        store = self._open_store(now)
        if store is None:
            return
        self._published = True
        with contextlib.suppress(RuntimeError):
            store.compare_set(STORE_KEY, "", msgspec.json.encode(self.address).decode())


def address_in_environ(environ: Mapping[str, str] = os.environ) -> HubAddress | None:
    """The hub that ``rankscope run`` has named, where all about it can be read."""
    try:
        return _read_environ(environ)
    except UserError:
        return None


def _read_environ(environ: Mapping[str, str]) -> HubAddress | None:
    endpoint, path = environ.get(env.ENDPOINT), environ.get(env.AGENT_KEY)
    if not endpoint or not path:
        return None
    key = keys.read_client_key(Path(path))
    return HubAddress(environ.get(env.RUN) or key.run, endpoint, key)


def pointer_path(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where this launcher's ranks leave word of their run; None when there is no launcher.

    A launcher is told by torchelastic's variable; it is the parent process, named by its pid and
    start time so that a reused pid is another launcher.
    """
    if "TORCHELASTIC_RUN_ID" not in environ:
        return None
    parent = os.getppid()
    started_s = procs.start_time_s(parent)
    if started_s is None:
        return None
    return nodedir.base_dir() / f"launcher-{parent}-{round(started_s * 100)}.json"
