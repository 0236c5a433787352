"""The run directory: where it is, what is in it, and which run a command means.

``$RANKSCOPE_HOME/runs/<run-id>/`` (or the user's state directory), mode 0700:

    run.json         what the run is and where its hub listens (RunInfo), replaced atomically
    keys/            hub.json, agent.json, operator.json, viewer.json, mode 0600
    recording/       segments, the oldest dropped first
    incidents.jsonl  never dropped
    hub.lock         held by the live hub
    hub.log
"""

import contextlib
import logging
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import platformdirs

from rankscope.protocol import env, keys
from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.files import check_private, read_private, write_private
from rankscope.protocol.paths import expanded, is_there, resolved
from rankscope.protocol.procs import is_alive, lock_holder, start_time_s
from rankscope.protocol.version import MAJOR

log = logging.getLogger("rankscope")
MAX_RUN_JSON_BYTES = 256 * 1024
MAX_LISTED = 8
LATEST = "latest"
"""The link beside the runs that leads to the newest."""
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class HubProcess(msgspec.Struct, frozen=True):
    pid: int
    start_time_s: float
    """Seconds since boot (``procs.start_time_s``): a reused pid differs in it."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """``run.json``."""

    run: str
    created_s: float
    command: list[str]
    world_size: int | None
    """None until a rank has said hello."""
    public_keys: dict[str, str]
    """The Z85 public keys of ``hub``, ``agent``, ``operator`` and ``viewer``."""
    endpoint: str | None = None
    """``tcp://host:port``; None until a hub has bound it. A restarted hub binds it again."""
    hub: HubProcess | None = None
    name: str = ""
    protocol_major: int = MAJOR
    ended_s: float | None = None
    """When the run ended, Unix time; its hub may still serve it. A hub that leaves in an orderly
    way before that writes its own end."""
    exit_code: int | None = None
    """What the launcher's command ended with, where there was one."""
    severity: str = ""
    """Of the gravest finding that was open when the run ended; empty for none."""
    headline: str | None = None
    """That finding in a sentence, empty for none; None until the run has ended."""
    launcher: HubProcess | None = None
    """The ``rankscope run`` that started it and will tell its end; None of ranks by themselves."""
    host: str = ""
    """The machine on which its hub runs, as it calls itself; empty where that was not noted."""


@dataclass(frozen=True)
class RunDirectory:
    """The paths of one run."""

    path: Path

    @property
    def run(self) -> str:
        return self.path.name

    @property
    def info_path(self) -> Path:
        return self.path / "run.json"

    @property
    def recording(self) -> Path:
        return self.path / "recording"

    @property
    def incidents(self) -> Path:
        return self.path / "incidents.jsonl"

    @property
    def lock(self) -> Path:
        return self.path / "hub.lock"

    @property
    def log(self) -> Path:
        return self.path / "hub.log"

    def key_path(self, role: str) -> Path:
        return self.path / "keys" / f"{role}.json"

    def read_info(self) -> RunInfo:
        """``run.json``; raises :class:`UserError` when it is missing, damaged or not private."""
        info = self._recognise(
            read_private(self.info_path, MAX_RUN_JSON_BYTES, "run file", self._recognise)
        )
        if info.protocol_major != MAJOR:
            raise UserError(
                f"run {info.run} was made by a rankscope of protocol {info.protocol_major}, "
                f"this one speaks {MAJOR}: use the version that made it",
            )
        return self._with_live_hub(info)

    def _recognise(self, raw: bytes) -> RunInfo:
        try:
            return msgspec.json.decode(raw, type=RunInfo)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UserError(
                f"{self.info_path} is damaged, or not one of rankscope ({error}); "
                "rankscope ls shows the runs there are"
            ) from None

    def _with_live_hub(self, info: RunInfo) -> RunInfo:
        """``info`` with the hub that holds the lock, when the one it names is gone.

        A hub whose disk is full serves, and cannot say so in ``run.json``; one that is starting
        again will serve in a moment.
        """
        if info.hub is None or info.ended_s is not None or hub_is_alive(info):
            return info
        pid = lock_holder(self.lock)
        started_s = None if pid is None else start_time_s(pid)
        if pid is None or started_s is None:
            return info
        return msgspec.structs.replace(info, hub=HubProcess(pid, started_s))

    def write_info(self, info: RunInfo) -> None:
        write_private(self.info_path, msgspec.json.format(msgspec.json.encode(info)) + b"\n")

    def read_key(self, role: keys.Role) -> keys.ClientKey:
        return keys.read_client_key(self.key_path(role))

    def read_hub_key(self) -> keys.KeyPair:
        """The hub's own pair."""
        path = self.key_path("hub")
        raw = read_private(path, keys.MAX_KEY_FILE_BYTES, "hub key")
        try:
            return msgspec.json.decode(raw, type=keys.KeyPair)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise UserError(f"{path} is damaged; the run cannot be reached any more") from None

    def check(self) -> None:
        """Raise :class:`UserError` unless it is a run directory, this user's, and closed.

        That it is none is said first: somebody else's folder is not to be closed or changed.
        """
        try:
            info = self.path.stat()
        except FileNotFoundError:
            raise UserError(
                f"no run {self.run} at {self.path.parent}; rankscope ls shows what there is"
            ) from None
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror}") from None
        if not self.path.is_dir():
            raise UserError(f"{self.path} is no run directory; rankscope ls shows what there is")
        with contextlib.suppress(PermissionError):  # another user's: said below
            try:
                self.info_path.stat()
            except FileNotFoundError:
                raise UserError(
                    f"{self.path} is no run directory (there is no run.json in it); "
                    "rankscope ls shows what there is"
                ) from None
        try:
            check_private(self.path, info, "run directory")
        except UserError:
            if self.info_path.is_file():
                with contextlib.suppress(OSError), self.info_path.open("rb") as file:
                    self._recognise(file.read(MAX_RUN_JSON_BYTES))
            raise


def elsewhere(info: RunInfo) -> str:
    """The machine of the run's hub where that is another one than this; else empty.

    Its processes cannot be seen from here, and one that is started here is found by no rank: the
    run directory is on a file system that both machines have.
    """
    return "" if info.host == socket.gethostname() else info.host


def hub_is_alive(info: RunInfo) -> bool:
    """Whether the hub named in ``run.json`` still runs on this machine."""
    return info.hub is not None and is_alive(info.hub.pid, info.hub.start_time_s)


def runs_home(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder that holds the run directories; it need not exist yet.

    Raises :class:`UserError` where ``RANKSCOPE_HOME`` is below the home folder of nobody.
    """
    home = environ.get(env.HOME)
    base = expanded(home, env.HOME) if home else Path(platformdirs.user_state_dir("rankscope"))
    return base.absolute() / "runs"


def new_run_id(now_s: float) -> str:
    """``20261129-163000-k3f9ab``: sorts by time, safe as a file name."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now_s))
    return f"{stamp}-{secrets.token_hex(3)}"


def create(
    home: Path,
    run: str,
    *,
    command: list[str],
    name: str,
    now_s: float,
    endpoint: str | None = None,
) -> RunDirectory:
    """Make a run directory with fresh keys, and let ``latest`` point to it.

    Raises :class:`UserError` when the id is no good or taken, or the place cannot be written.
    """
    if not RUN_ID.fullmatch(run):
        raise UserError(
            f"{run!r} is no run id: letters, digits, dot, dash and underscore, up to 64"
        )
    if run.lower() == LATEST:  # lower: there are disks to which it is the same
        raise UserError(
            f"{run!r} is no run id: it always leads to the newest run; choose another id"
        )
    directory = RunDirectory(home / run)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            directory.path.mkdir(mode=0o700)
        except FileExistsError:
            raise UserError(
                f"run {run} exists already at {directory.path}; choose another id"
            ) from None
        try:
            _fill(directory, command=command, name=name, now_s=now_s, endpoint=endpoint)
        except BaseException:
            shutil.rmtree(directory.path, ignore_errors=True)
            raise
    except OSError as error:
        raise UserError(
            f"cannot write the run directory {directory.path}: {error.strerror}; "
            f"set {env.HOME} to a place that can be written"
        ) from None
    _point_latest(home, run)
    return directory


def _fill(
    directory: RunDirectory, *, command: list[str], name: str, now_s: float, endpoint: str | None
) -> None:
    """Write what a run directory holds from the first: fresh keys and ``run.json``."""
    (directory.path / "keys").mkdir(mode=0o700)
    directory.recording.mkdir(mode=0o700)
    hub = keys.new_pair()
    write_private(directory.key_path("hub"), msgspec.json.encode(hub) + b"\n")
    public = {"hub": hub.public}
    for role in keys.ROLES:
        pair = keys.new_pair()
        public[role] = pair.public
        keys.write_client_key(
            directory.key_path(role),
            keys.ClientKey(role, directory.run, pair.public, pair.secret, hub.public),
        )
    directory.write_info(
        RunInfo(
            run=directory.run,
            created_s=now_s,
            command=command,
            world_size=None,
            public_keys=public,
            endpoint=endpoint,
            name=name,
            host=socket.gethostname(),
        )
    )


def list_runs(home: Path) -> list[RunDirectory]:
    """All run directories below ``home``, newest first, by the time of their making."""
    found: list[tuple[float, RunDirectory]] = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        for path in home.iterdir():
            if path.is_symlink() or not (path / "run.json").is_file():
                continue
            directory = RunDirectory(path)
            try:
                created_s = directory.read_info().created_s
            except UserError:
                created_s = path.stat().st_mtime
            found.append((created_s, directory))
    found.sort(key=lambda item: (item[0], item[1].run), reverse=True)
    return [directory for _, directory in found]


def find_run(home: Path, wanted: str | None) -> RunDirectory:
    """The run a command means: a run id, the unique start of one, a run's name, a path, or None.

    None is the only live run; with none live, the newest ended one. Several live ones raise
    :class:`UserError` with the list, as does every name that leads nowhere.
    """
    if wanted is not None:
        path = expanded(wanted)
        by_id = home / wanted
        if os.sep not in wanted and (is_there(by_id, folder=True) or not is_there(path)):
            path = by_id
            if not is_there(path):
                path = home / _unique(home, wanted)
        directory = RunDirectory(resolved(path))
        directory.check()
        return directory
    runs = list_runs(home)
    if not runs:
        raise UserError(
            f"no run found in {home}; start one with: rankscope run -- CMD, or rankscope demo",
            Exit.UNREACHABLE,
        )
    live = live_runs(runs)
    if len(live) > 1:
        names = ", ".join(directory.run for directory in live)
        raise UserError(f"{len(live)} runs are live, name one of them: {names}")
    chosen = live[0] if live else runs[0]
    chosen.check()
    return chosen


def _unique(home: Path, wanted: str) -> str:
    """The id of the only run that is called ``wanted`` or begins so; ``wanted`` when none does.

    Raises :class:`UserError` with the list when there are several.
    """
    found = []
    for directory in list_runs(home):
        with contextlib.suppress(UserError):
            if directory.run.startswith(wanted) or directory.read_info().name == wanted:
                found.append(directory.run)
    if len(found) > 1:
        more = f" and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
        raise UserError(
            f"{wanted!r} may be any of {len(found)} runs, name one of them: "
            f"{', '.join(found[:MAX_LISTED])}{more}"
        )
    return found[0] if found else wanted


def live_runs(runs: list[RunDirectory]) -> list[RunDirectory]:
    """Those of ``runs`` that have not ended and whose hub runs on this machine."""
    live = []
    for directory in runs:
        with contextlib.suppress(UserError):
            info = directory.read_info()
            if info.ended_s is None and hub_is_alive(info):
                live.append(directory)
    return live


def _point_latest(home: Path, run: str) -> None:
    """Let ``latest`` lead to ``run``. No run rests on it: one line says why it does not."""
    temporary, link = home / f".{LATEST}.{run}", home / LATEST
    try:
        temporary.symlink_to(run)
        try:
            temporary.replace(link)
        except OSError:
            temporary.unlink()
            raise
    except OSError as error:
        log.warning("rankscope: %s does not lead to run %s (%s)", link, run, error.strerror)
