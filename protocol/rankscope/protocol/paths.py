"""Paths as a user gives them: what leads nowhere is told in a line."""

from pathlib import Path

from rankscope.protocol.exits import UserError


def expanded(given: str, what: str = "") -> Path:
    """``given`` with the home folder in place of ``~`` or ``~user``.

    Raises :class:`UserError`, which names ``what`` it was given as, where there is no such home.
    """
    try:
        return Path(given).expanduser()
    except RuntimeError:
        of = f"{what}={given}" if what else given
        user = given.partition("/")[0]
        raise UserError(
            f"cannot read {of}: {user} is nobody's home folder here; give the whole path"
        ) from None


def resolved(path: Path) -> Path:
    """``path`` with its links followed; raises :class:`UserError` where they go in a circle."""
    try:
        return path.resolve()
    except (RuntimeError, OSError):  # the former until Python 3.12
        raise UserError(
            f"cannot read {path}: its links lead nowhere; name the run itself"
        ) from None


def is_there(path: Path, *, folder: bool = False) -> bool:
    """Whether something, or a ``folder``, is at ``path``; False too where the name is too long."""
    try:
        return path.is_dir() if folder else path.exists()
    except OSError:
        return False
