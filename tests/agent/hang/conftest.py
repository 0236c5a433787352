"""Ranks that hang, heard by a bare listening end."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any

import pytest

from rankscope.agent import nodedir
from support.listener import Listener
from support.training import start

Launch = Callable[..., "Popen[str]"]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Listener]:
    with Listener(tmp_path / "hub", run=f"run-{os.getpid()}-{tmp_path.name}"[:60]) as listener:
        yield listener


@pytest.fixture
def environ(hub: Listener, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Leads agents to ``hub``; the sentinel's lock is held, so that none is started."""
    temporary = tmp_path / "tmp"
    temporary.mkdir(mode=0o700)
    node = temporary / f"rankscope-{os.geteuid()}" / hub.run
    (node / "ranks").mkdir(parents=True, mode=0o700)
    node.chmod(0o700)
    node.parent.chmod(0o700)
    lock = nodedir.try_lock(nodedir.sentinel_lock_path(node))
    assert lock is not None
    yield {**hub.environ, "TMPDIR": str(temporary)}
    os.close(lock)


@pytest.fixture
def launch(tmp_path: Path, environ: dict[str, str]) -> Iterator[Launch]:
    """Starts ``hang.py`` on so many ranks under torchrun; what still runs is ended afterwards."""
    until = tmp_path / "until"
    started: list[Popen[str]] = []

    def launched(ranks: int, **options: Any) -> "Popen[str]":
        process = start("hang.py", environ, ranks, until=str(until), **options)
        started.append(process)
        return process

    yield launched
    until.touch()
    for process in started:
        try:
            process.communicate(timeout=60)
        except TimeoutExpired:
            pass
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
