"""A Python that has imported torch already: programs under test begin as forks of it.

A process spends 3 to 5 s of CPU on importing torch and what the first optimizer brings in, far more
than most programs under test compute, and a run of two ranks does so three times. :func:`python` is
the path of an executable that is called like ``python [-u] (-m MODULE | -c CODE | FILE) ARGUMENTS``
and does as that would, but sooner: it hands its arguments, environment, folder and standard streams
to a server that has imported torch and done nothing else, and that forks. It stays for as long as
the fork runs, hands on the signals it gets, and ends as that does, by the same signal or code.
torchrun starts its ranks with it where ``PYTHON_EXEC`` names it.

The fork's pid is not that of the process which was started, and ``/proc`` shows the server's
command line and environment for it: :func:`living` knows the forks that live. There is one server a
test process; it ends, with all its forks, when that does.
"""

import atexit
import contextlib
import functools
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

CLIENT = Path(__file__).with_name("warm_client.py")
SERVER = Path(__file__).with_name("warm_server.py")


@functools.cache
def python() -> str:
    """The executable's path; the server is started with the first call."""
    folder = Path(tempfile.mkdtemp(prefix="rs-warm-"))  # which the server removes
    # A name in Linux's abstract namespace: no path that could grow too long.
    address = f"rankscope-{os.getpid()}-{folder.name}"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RANK")}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + address)
        listener.listen(64)  # who calls before it has imported torch waits
        server = subprocess.Popen(
            [sys.executable, str(SERVER), str(listener.fileno()), str(folder / "forks")],
            stdin=subprocess.PIPE,  # its end of file is ours
            pass_fds=[listener.fileno()],
            env={**environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,
        )
    atexit.register(_end, server)
    (folder / "forks").mkdir()
    client, executable = folder / "client.py", folder / "python"
    client.write_text(f"ADDRESS = {address!r}\n" + CLIENT.read_text())
    words = shlex.join([sys.executable, "-IS", str(client)])  # of paths with blanks, too
    executable.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    executable.chmod(0o755)
    return str(executable)


def living(home: Path) -> list[int]:
    """The pids of the forks that live and have ``home`` for their RANKSCOPE_HOME."""
    if not python.cache_info().currsize:
        return []
    found = []
    for file in Path(python()).with_name("forks").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has just ended
            if file.read_text() == str(home):
                found.append(int(file.name))
    return found


def _end(server: "subprocess.Popen[bytes]") -> None:
    assert server.stdin is not None
    server.stdin.close()
    server.wait(120)  # it may be importing torch yet
