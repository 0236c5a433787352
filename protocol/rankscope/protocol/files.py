"""Private files: written atomically with mode 0600, refused when others could have touched them."""

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from rankscope.protocol.exits import UserError


def write_private(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content`` (mode 0600): readers see the old file or the new one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:  # mkstemp made it 0600
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def append_private(path: Path) -> BinaryIO:
    """``path`` opened for appending, mode 0600 whatever the umask is or the file had before."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    with contextlib.suppress(OSError):  # another user's: check_private speaks of that
        os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "ab")


def read_private(
    path: Path, max_bytes: int, what: str, recognise: Callable[[bytes], object] | None = None
) -> bytes:
    """The content of ``path``, which only its owner may be able to read or write.

    Raises :class:`UserError` when it is missing, no plain file, larger than ``max_bytes``, another
    user's, or open to others. ``recognise`` raises one when the content is none of rankscope's:
    that is told first, since advice on the mode of a file of somebody else's could do harm.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise UserError(f"no {what} at {path}") from None
    except OSError as error:
        raise UserError(f"cannot read the {what} {path}: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise UserError(f"the {what} {path} is not a plain file")
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise UserError(f"the {what} {path} is larger than {max_bytes} bytes: not one of rankscope")
    if recognise is not None:
        recognise(content)
    check_private(path, info, what)
    return content


def check_private(path: Path, info: os.stat_result, what: str) -> None:
    """Raise :class:`UserError` unless ``path`` is this user's and closed to group and others."""
    if info.st_uid != os.geteuid():
        raise UserError(
            f"the {what} {path} belongs to user {info.st_uid}; use your own (RANKSCOPE_HOME)"
        )
    open_bits = stat.S_IMODE(info.st_mode) & 0o077
    if open_bits:
        raise UserError(
            f"the {what} {path} is open to other users (mode "
            f"{stat.S_IMODE(info.st_mode):04o}); close it with: chmod go-rwx {path}"
        )
