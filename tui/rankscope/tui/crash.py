"""What is kept of a bug: a crash file for its author, one line for the user."""

import contextlib
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rankscope.protocol.files import write_private


def write_crash(error: BaseException) -> str:
    """Write the traceback of ``error``, without locals, to a file of mode 0600; says where.

    The file goes beside the run directories, or to the temporary folder when that fails.
    """
    lines = traceback.TracebackException.from_exception(error, capture_locals=False).format()
    # The command's name only: its arguments may be a training command with secrets in it.
    head = (
        f"rankscope {_version()}, Python {platform.python_version()}, {platform.platform()}\n"
        f"command: {' '.join(sys.argv[1:2])}\n\n"
    )
    content = (head + "".join(lines)).encode("utf-8", "replace")
    name = f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    kind = type(error).__name__
    for folder in _folders():
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(folder / name, content)
            return f"a bug in rankscope ({kind}); please report it with {folder / name}"
    return f"a bug in rankscope ({kind}); its traceback could not be written anywhere"


def _folders() -> Iterator[Path]:
    # Imported here: what fails may be an installation in which this cannot be imported either.
    with contextlib.suppress(Exception):
        from rankscope.protocol.rundir import runs_home

        yield runs_home().parent
    yield Path(tempfile.gettempdir())


def _version() -> str:
    try:
        return version("rankscope")
    except PackageNotFoundError:
        return "unknown"
