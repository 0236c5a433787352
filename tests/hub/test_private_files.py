"""Nothing of a run can be read by other users, whatever the umask."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.protocol import launch
from rankscope.protocol import messages as m
from support.wire import PATIENCE_S, Peer, new_run, wait_until


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.processes
@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("older_log", [False, True])
def test_all_files_of_a_run_are_private(tmp_path: Path, older_log: bool) -> None:
    """Directories 0700, files 0600: keys, log, recording, incidents, lock; a log of before too."""
    directory = new_run(tmp_path)
    if older_log:
        directory.log.write_text("what an older version had to say\n")
        directory.log.chmod(0o644)
    hub = launch.spawn_hub(directory)
    try:
        info = launch.wait_for_hub(directory, hub, PATIENCE_S)
        assert info.endpoint is not None
        with Peer(info.endpoint, directory.read_key("agent")) as agent:
            agent.send(m.NodeHello("n", 1, 0.0, "run-1", "here", 1, "", "", {}))
            agent.send(m.ProcessEnded("n", 2, 0.0, 0, 0, 1, 1, None, False, 0.0, "pidfd"))
            wait_until(directory.incidents.exists, "an incident")
    finally:
        hub.terminate()
        hub.wait(PATIENCE_S)
    modes = {
        path.relative_to(directory.path).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in (directory.path, *directory.path.rglob("*"))
    }
    assert {"run.json", "hub.log", "hub.lock", "incidents.jsonl", "keys/hub.json"} <= set(modes)
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
    assert ("older version" in directory.log.read_text()) == older_log
