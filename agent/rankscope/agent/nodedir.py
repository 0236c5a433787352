"""Where a node's ranks register for the node's sentinel, and the locks beside it.

``<tmp>/rankscope-<uid>/<run-id>/`` (both levels mode 0700) holds

    ranks/<attempt>-<rank>.json   one Registration for each rank process
    sentinel.lock                 flock'ed by the node's sentinel while it lives
    leader.lock                   flock'ed by the rank whose agent looks after the sentinel

Files and not the hub, because the hub may be away. ``<tmp>`` is open to everybody, so nothing in
it is trusted before its owner and mode were looked at.
"""

import contextlib
import fcntl
import os
import stat
import tempfile
from pathlib import Path

import msgspec

from rankscope.protocol import procs
from rankscope.protocol.exits import UserError
from rankscope.protocol.files import read_private, write_private

MAX_REGISTRATION_BYTES = 4096


class Registration(msgspec.Struct, frozen=True):
    """One rank process of this node. ``start_time_s`` as in ``protocol.procs``."""

    pid: int
    start_time_s: float
    attempt: int
    rank: int
    calls: int = -1
    """The descriptor in that process of the memory in which it writes down its collectives."""


def base_dir() -> Path:
    """``<tmp>/rankscope-<uid>``; it need not exist yet."""
    return Path(tempfile.gettempdir()) / f"rankscope-{os.geteuid()}"


def node_dir(run: str) -> Path:
    """The node directory of ``run``; it need not exist yet (:func:`make_node_dir`)."""
    return base_dir() / run


def make_node_dir(run: str) -> Path:
    """The node directory of ``run``, made where it is missing and checked.

    Raises :class:`UserError` when it, or the folder above, is not a folder of this user's own that
    is closed to all others.
    """
    directory = node_dir(run)
    for path in (directory.parent, directory, directory / "ranks"):
        make_private_dir(path)
    return directory


def make_private_dir(path: Path) -> None:
    """Make ``path`` with mode 0700, or check the one that is there.

    Raises :class:`UserError` when it is a link, no folder, another user's or open to others.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    check_private_dir(path)


def check_private_dir(path: Path) -> None:
    """Raise :class:`UserError` unless ``path`` is a real folder, this user's and closed."""
    try:
        info = path.lstat()
    except OSError as error:
        raise UserError(f"cannot use {path}: {error.strerror}") from None
    if not stat.S_ISDIR(info.st_mode):
        raise UserError(f"{path} is not a folder; remove it")
    if info.st_uid != os.geteuid():
        raise UserError(f"{path} belongs to user {info.st_uid}; set TMPDIR to a folder of your own")
    if stat.S_IMODE(info.st_mode) & 0o077:
        raise UserError(f"{path} is open to other users; close it with: chmod go-rwx {path}")


def registration_path(directory: Path, attempt: int, rank: int) -> Path:
    return directory / "ranks" / f"{attempt}-{rank}.json"


def register(directory: Path, registration: Registration) -> Path:
    """Write the rank's file, atomically and with mode 0600; returns its path."""
    path = registration_path(directory, registration.attempt, registration.rank)
    write_private(path, msgspec.json.encode(registration) + b"\n")
    return path


def read_registrations(directory: Path) -> list[Registration]:
    """All readable registrations below ``directory``, by attempt and rank.

    A file that is damaged, foreign or open to others is left out: it cannot have come from a rank
    of this run. Raises :class:`UserError` when the folder itself is not private.
    """
    ranks = directory / "ranks"
    if not ranks.exists():
        return []
    check_private_dir(directory)
    check_private_dir(ranks)
    found = []
    for path in ranks.glob("*.json"):
        with contextlib.suppress(UserError, msgspec.DecodeError, UnicodeDecodeError):
            raw = read_private(path, MAX_REGISTRATION_BYTES, "registration")
            found.append(msgspec.json.decode(raw, type=Registration))
    found.sort(key=lambda one: (one.attempt, one.rank))
    return found


def sentinel_lock_path(directory: Path) -> Path:
    """The file that the node's sentinel holds flock'ed."""
    return directory / "sentinel.lock"


def leader_lock_path(directory: Path) -> Path:
    """The file that the rank which looks after the sentinel holds flock'ed."""
    return directory / "leader.lock"


def forget_launchers_gone() -> None:
    """Remove the pointers (``hublink``) of launchers that have ended."""
    for path in base_dir().glob("launcher-*.json"):
        with contextlib.suppress(ValueError, OSError):
            _, pid, started = path.stem.split("-")
            if not procs.is_alive(int(pid), int(started) / 100):
                path.unlink()


def is_at(descriptor: int, path: Path) -> bool:
    """Whether ``descriptor``'s file is still the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def try_lock(path: Path) -> int | None:
    """A descriptor that holds ``path`` locked until it is closed, or None when another has it.

    Never waits. The descriptor is not inherited by started programs; a forked child must close its
    copy, or the lock lives on in it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether some process holds ``path`` locked; False when there is no such file."""
    if not path.exists():
        return False
    descriptor = try_lock(path)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False
