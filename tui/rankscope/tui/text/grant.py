"""What ``rankscope grant`` says: who may do what with the key, and the lines to type."""

import getpass
import socket
from pathlib import Path

from rankscope.protocol.pasting import quoted

LOOPBACK = ("127.0.0.1", "[::1]", "localhost")


def grant_lines(role: str, run: str, endpoint: str, path: Path) -> list[str]:
    """``path`` holds the key of ``role`` for the hub at ``endpoint``."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    may = {
        "viewer": "look at everything, and command nothing",
        "operator": "look at everything, save checkpoints, pause and stop the run",
    }[role]
    file = quoted(path, {})  # whole: the home folder there is another
    lines = [
        f"{path}: whoever holds it may {may}.",
        "Give it over a channel you trust. It is the key of its role for this run: it cannot be",
        "taken back from one holder alone, and is worth nothing once the run has ended.",
        "",
    ]
    if host in LOOPBACK:
        lines += [
            f"The hub of {run} listens on this machine alone. Elsewhere forward its port first:",
            "",
            f"  ssh -N -L {port}:{host}:{port} {_user()}@{socket.gethostname()}",
            "",
            "and then, in another terminal there:",
        ]
    else:
        lines += ["There, with the file beside you:"]
    return [*lines, "", f"  rankscope top --endpoint {endpoint} --key {file}"]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "USER"
