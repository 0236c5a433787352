"""A script that is over before its hub is up: its run is known all the same."""

import contextlib
import os
import subprocess
from pathlib import Path

import psutil
import pytest

from rankscope.agent import farewell
from rankscope.protocol import rundir
from support import warm
from support.training import environment
from support.wire import Peer, wait_until

PROGRAM = """
import sys, time
import torch
from rankscope.agent import attach, registry
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
attach(model, optimizer, name="short")
for _ in range(3):
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
finder = lambda: registry._session.sender._finder
deadline = time.monotonic() + 60
while finder() is None or finder().starting is None and time.monotonic() < deadline:
    time.sleep(0.001)  # until the hub is being started, and not until it is up
if sys.argv[1] == "raise": raise ValueError("no such token")
"""


@pytest.mark.processes
@pytest.mark.parametrize("how", ["ends", "raise"])
def test_a_run_shorter_than_its_hubs_start_is_told_in_full(how: str, tmp_path: Path) -> None:
    """Its steps, its exception and its end arrive after it is gone."""
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    temporary.mkdir(mode=0o700)
    done = subprocess.run(
        [warm.python(), "-c", PROGRAM, how],
        env=environment({"RANKSCOPE_HOME": str(home), "TMPDIR": str(temporary)}),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == (1 if how == "raise" else 0), done.stderr
    (path,) = [one for one in (home / "runs").iterdir() if not one.is_symlink()]
    directory = rundir.RunDirectory(path)
    try:
        wait_until(lambda: rundir.hub_is_alive(directory.read_info()), "the hub", 60)
        endpoint = directory.read_info().endpoint
        assert endpoint is not None
        with Peer(endpoint, directory.read_key("viewer")) as viewer:
            # The state is that of the moment; a finding comes with the next diagnosis.
            status = viewer.wait_for_view(
                "status",
                lambda one: (
                    one.state == ("failed" if how == "raise" else "finished")
                    and ("no such token" in str(one.findings)) == (how == "raise")
                ),
            )
        assert status.step == 3
        assert status.name == "short"
    finally:
        info = directory.read_info()
        if info.hub is not None and psutil.pid_exists(info.hub.pid):
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(info.hub.pid, 15)
            wait_until(lambda: not rundir.hub_is_alive(directory.read_info()), "its end", 60)


def test_frames_go_through_the_pipe_as_they_are() -> None:
    """Each comes out as it went in; one that was cut off is left out."""
    frames = [b"", b"a", b"bc" * 1000]
    raw = b"".join(len(one).to_bytes(4, "little") + one for one in frames)
    assert farewell.split(raw) == frames
    assert farewell.split(raw[:-1]) == frames[:-1]
    assert farewell.split(raw[:2]) == []
