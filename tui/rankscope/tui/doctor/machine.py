"""The machine itself: where files go, whether loopback works, what the kernel offers."""

import os
import platform
import socket
import stat
import tempfile
from pathlib import Path

from rankscope.protocol.exits import UserError
from rankscope.protocol.files import write_private
from rankscope.protocol.rundir import runs_home
from rankscope.tui.doctor.check import Check


def state_directory() -> list[Check]:
    """Whether run directories can be made, private to this user."""
    home = runs_home()
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = home / f".doctor-{os.getpid()}"
        try:
            write_private(probe, b"")
            mode = stat.S_IMODE(probe.stat().st_mode)
        finally:
            probe.unlink(missing_ok=True)
    except (OSError, UserError) as error:
        return [
            Check(
                "run directories",
                works=False,
                says=f"{home} cannot be written: {error}",
                do="set RANKSCOPE_HOME to a place that can be written",
            )
        ]
    return [
        Check(
            "run directories",
            works=mode & 0o077 == 0,
            says=f"{home}, mode {stat.S_IMODE(home.stat().st_mode):04o}",
            do="this file system does not keep files private; set RANKSCOPE_HOME to one that does",
        )
    ]


def temporary_directory() -> list[Check]:
    """Whether a node's ranks can find their sentinel."""
    try:
        with tempfile.TemporaryDirectory(prefix="rankscope-doctor-") as folder:
            works = stat.S_IMODE(Path(folder).stat().st_mode) & 0o077 == 0
    except OSError as error:
        return [Check("temporary files", False, str(error), do="set TMPDIR to a place to write in")]
    return [
        Check("temporary files", works, tempfile.gettempdir(), do="set TMPDIR to a private place")
    ]


def loopback() -> list[Check]:
    """Whether a port can be bound on loopback and reached there."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=2.0):
                pass
    except OSError as error:
        return [
            Check("loopback", False, f"127.0.0.1: {error}", do="bring up the loopback interface")
        ]
    return [Check("loopback", True, f"a free port was bound and reached (127.0.0.1:{port})")]


def kernel() -> list[Check]:
    """Whether the death of a process that is no child can be seen."""
    release = platform.release()
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        return [
            Check(
                "process ends",
                works=False,
                essential=False,
                says=f"{platform.system()} {release}: no pidfd ({error})",
                do="Linux 5.3 or newer tells how a rank died; here exit codes stay unknown",
            )
        ]
    return [Check("process ends", True, f"{platform.system()} {release}, pidfd", essential=False)]
