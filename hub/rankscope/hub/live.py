"""``python -m rankscope.hub --run-dir DIR``: the hub of a run, from lock to orderly end."""

import contextlib
import fcntl
import gc
import os
import resource
import socket
from collections.abc import Iterator

import msgspec

from rankscope.hub import incidents
from rankscope.hub.clock import Clock
from rankscope.hub.core import Core
from rankscope.hub.diagnose import gravest
from rankscope.hub.lifetimes import Lifetimes
from rankscope.hub.log import Log
from rankscope.hub.recording import Recorder
from rankscope.hub.restore import restore
from rankscope.hub.runstate import ended_s, exit_code, run_state
from rankscope.hub.server import Stop, serve_live
from rankscope.hub.sockets import REBIND_S, Sockets
from rankscope.hub.state import RunState
from rankscope.hub.zap import roles_by_key
from rankscope.protocol.exits import UserError
from rankscope.protocol.keys import ROLES
from rankscope.protocol.procs import is_alive, start_time_s
from rankscope.protocol.rundir import HubProcess, RunDirectory, RunInfo
from rankscope.protocol.shapes import Finding

LOOPBACK = "127.0.0.1"
ANY_ADDRESS = ("0.0.0.0", "::", "*")


def run_hub(
    directory: RunDirectory, bind: str | None, port: int | None, lifetimes: Lifetimes
) -> None:
    """Serve the run until it ends. Raises :class:`UserError` when it cannot begin."""
    directory.check()
    info = directory.read_info()
    pair = directory.read_hub_key()
    log = Log()
    stop = Stop()
    with _locked(directory, info):
        _allow_many_files()
        sockets = Sockets(pair, roles_by_key(info.public_keys, ROLES))
        try:
            info = _listen(sockets, info, bind, port)
            # From here on peers connect; what they send waits until the state is rebuilt.
            restored = restore(directory.recording, info.run)
            clock = Clock(restored.last_s if restored else 0.0)
            started_s = clock.now_s()
            state = restored.state if restored else RunState(info.run, info.name)
            state.version = max(state.version, int(started_s * 1e6))
            state.began_s = min(info.created_s, started_s)
            if info.hub is not None:
                state.restarts += 1
            state.hub_was_away(started_s)
            recorder = Recorder(directory.recording)
            file = incidents.IncidentFile(directory.incidents)
            core = Core(
                state,
                incidents.Incidents(incidents.read(directory.incidents)),
                now_s=started_s,
                recorder=recorder,
                incident_file=file,
                log=log,
            )
            core.snapshot(started_s)
            if restored:
                core.restarted()
            book = _RunFile(directory, info, log)
            book.begin(os.getpid(), state, started_s)
            log.say(
                f"hub {os.getpid()} serves run {info.run} at {info.endpoint}"
                + (f", rebuilt up to step {_top_step(state)}" if restored else "")
            )
            core.on_world_size = lambda size: book.ranks_said(size, state.name)
            core.on_end = lambda end_s, code: book.run_ended(
                end_s, code, gravest(core.know.findings)
            )
            launcher = info.launcher
            if launcher is not None:
                core.know.launcher = launcher.pid, socket.gethostname()
                core.launcher_lives = lambda: is_alive(launcher.pid, launcher.start_time_s)
            gc.collect()
            gc.freeze()  # modules and what was restored stay: nobody is to go through them again
            reason = serve_live(core, sockets, clock, lifetimes, stop)
            now_s = clock.now_s()
            core.close(now_s)
            # What came after the last tick, too.
            end_s = ended_s(state, run_state(state, now_s))
            book.run_ended(end_s, exit_code(state), gravest(core.know.findings))
            book.hub_ends(now_s)
            log.say(f"hub ends: {reason}")
        finally:
            sockets.close()


class _RunFile:
    """Keeps ``run.json`` up to date; a disk that refuses does not end the hub."""

    def __init__(self, directory: RunDirectory, info: RunInfo, log: Log) -> None:
        self._directory = directory
        self._info = info
        self._log = log

    def begin(self, pid: int, state: RunState, now_s: float) -> None:
        self._write(
            hub=HubProcess(pid, start_time_s(pid) or 0.0),
            ended_s=ended_s(state, run_state(state, now_s)),
            endpoint=self._info.endpoint,
            host=socket.gethostname(),
        )

    def ranks_said(self, world_size: int, name: str) -> None:
        """How many they are, and what the run is called where its launcher gave no name."""
        if (world_size, name) != (self._info.world_size, self._info.name):
            self._write(world_size=world_size, name=name)

    def run_ended(
        self, end_s: float | None, exit_code: int | None, verdict: Finding | None
    ) -> None:
        """Write the run's end when it has come, with its verdict, which may come a moment later;
        take it back when ranks were started again."""
        info, over = self._info, end_s is not None
        exit_code = exit_code if over else None  # its ranks may outlive the command
        said = ("", "") if verdict is None else (str(verdict.severity), verdict.headline)
        severity, headline = said if over else ("", None)
        if (over, exit_code, severity, headline) != (
            info.ended_s is not None,
            info.exit_code,
            info.severity,
            info.headline,
        ):
            self._write(
                ended_s=info.ended_s if over and info.ended_s is not None else end_s,
                exit_code=exit_code,
                severity=severity,
                headline=headline,
            )

    def hub_ends(self, now_s: float) -> None:
        """Nobody shall start it again, also when it leaves before the run has ended."""
        if self._info.ended_s is None:
            self._write(ended_s=now_s)

    def _write(self, **changes: object) -> None:
        self._info = msgspec.structs.replace(self._info, **changes)
        try:
            self._directory.write_info(self._info)
        except OSError as error:
            self._log.say(f"cannot write {self._directory.info_path}: {error.strerror}")


@contextlib.contextmanager
def _locked(directory: RunDirectory, info: RunInfo) -> Iterator[None]:
    """Hold ``hub.lock``; raises :class:`UserError` when another hub of the run does."""
    try:
        descriptor = os.open(directory.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UserError(f"cannot write {directory.lock}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        who = f" (pid {info.hub.pid})" if info.hub is not None else ""
        raise UserError(f"run {info.run} has a hub already{who}; one is enough") from None
    try:
        yield
    finally:
        os.close(descriptor)


def _listen(sockets: Sockets, info: RunInfo, bind: str | None, port: int | None) -> RunInfo:
    """Bind what was asked for, else what the run had before, else a free port on loopback."""
    address, retry_s = bind or LOOPBACK, 0.0
    shown = None
    if info.endpoint is not None:
        shown, known_port = _split(info.endpoint)
        address = bind or shown
        port = known_port if port is None else port
        retry_s = REBIND_S
    bound = sockets.bind(address, port, retry_s)
    if address in ANY_ADDRESS:
        address = shown if shown not in (None, *ANY_ADDRESS) else _own_address()
    host = f"[{address}]" if ":" in address else address
    return msgspec.structs.replace(info, endpoint=f"tcp://{host}:{bound}")


def _split(endpoint: str) -> tuple[str, int]:
    """Host and port of ``tcp://host:port``."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(f"run.json names no endpoint that can be bound: {endpoint}")
    return host.strip("[]"), int(port)


def _own_address() -> str:
    """The address by which other machines reach this one: that of the default route."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: a datagram socket only looks up the route
        return str(probe.getsockname()[0])
    return socket.gethostname()


def _allow_many_files() -> None:
    """One descriptor a peer: the soft limit of 1024 is too few for a large run."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1 << 17 if hard == resource.RLIM_INFINITY else min(hard, 1 << 17)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _top_step(state: RunState) -> int:
    return int(state.ranks.step.max(initial=0))
