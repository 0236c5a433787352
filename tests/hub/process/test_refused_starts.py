"""A hub that must not start says why in one line."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.protocol import rundir
from support.wire import Hub, new_run, spawn

pytestmark = pytest.mark.processes


def failed_start(directory: rundir.RunDirectory, *options: str) -> tuple[int, str]:
    """The exit code and the words of a hub that must not start."""
    process = spawn(directory, *options)
    code = process.wait(60)
    return code, directory.log.read_text().strip().splitlines()[-1]


def test_a_second_hub_for_a_run_is_refused(hub: Hub) -> None:
    """One line, exit 2, and the first one goes on."""
    code, words = failed_start(hub.directory)
    assert code == 2
    assert words == f"run run-1 has a hub already (pid {hub.info.hub.pid}); one is enough"  # type: ignore[union-attr]
    with hub.connect("viewer") as client:
        client.ping()


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    """Which port, and what to do about it."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, words = failed_start(new_run(tmp_path), "--port", str(port))
    assert code == 2
    assert words.startswith(f"port {port} on 127.0.0.1 is in use")
    assert "--port" in words


def test_an_address_that_is_not_this_machines_is_said(tmp_path: Path) -> None:
    """One line, exit 2."""
    code, words = failed_start(new_run(tmp_path), "--bind", "192.0.2.77")
    assert code == 2
    assert words.startswith("cannot listen on 192.0.2.77")


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_a_port_that_is_none_is_said(tmp_path: Path, port: str) -> None:
    """Usage, exit 2."""
    code, words = failed_start(new_run(tmp_path), f"--port={port}")
    assert code == 2
    assert "is no port" in words


def test_a_run_directory_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """Keys are in it."""
    directory = new_run(tmp_path)
    directory.path.chmod(0o755)
    code, words = failed_start(directory)
    assert code == 2
    assert "chmod go-rwx" in words


def test_a_missing_run_is_said(tmp_path: Path) -> None:
    """One line on stderr, no traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "rankscope.hub", "--run-dir", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("no run none at")
    assert len(done.stderr.splitlines()) == 1
