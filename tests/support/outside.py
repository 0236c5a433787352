"""Running ``rankscope`` from outside: its exit code, its words, and what it leaves running."""

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from support.runs import RANKSCOPE, belonging_to, environment, wait_until

DEADLINE_S = 120.0


@dataclass(frozen=True)
class Ran:
    """A command that ended."""

    code: int
    out: str
    err: str


def rankscope(home: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Ran:
    """``rankscope ARGUMENTS`` with no terminal anywhere."""
    result = subprocess.run(
        [*RANKSCOPE, *arguments],
        env=environment(home, **(env or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return Ran(result.returncode, result.stdout, result.stderr)


def refused(ran: Ran, code: int, *words: str) -> None:
    """Assert that ``ran`` is a refusal: the code, one line on stderr, nothing on stdout."""
    assert ran.code == code, ran
    assert ran.err.count("\n") == 1, ran
    assert ran.err.startswith("rankscope: "), ran
    assert ran.out == "", ran
    assert "Traceback" not in ran.err
    for word in words:
        assert word in ran.err, ran


def left(home: Path) -> list[psutil.Process]:
    """What still runs of ``home``."""
    found = []
    for process in belonging_to(home):
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@contextlib.contextmanager
def nothing_left(home: Path, within_s: float = 60.0, *, but_hub: bool = False) -> Iterator[None]:
    """Fails when a process of ``home`` is left some time after the block; and ends it.

    ``but_hub``: do not wait for the run's hub, which goes on for some seconds by design.
    """

    def rest() -> list[psutil.Process]:
        return [process for process in left(home) if not (but_hub and is_hub(process))]

    try:
        yield
        wait_until(lambda: not rest(), f"nothing of {home} running", within_s)
    finally:
        for process in belonging_to(home):
            with contextlib.suppress(psutil.Error):
                process.kill()


def is_hub(process: psutil.Process) -> bool:
    """Whether it is a run's own hub, not one that replays."""
    with contextlib.suppress(psutil.Error):
        line = process.cmdline()
        return "rankscope.hub" in line and "--run-dir" in line
    return False


@contextlib.contextmanager
def started(home: Path, *arguments: str, **env: str) -> "Iterator[subprocess.Popen[str]]":
    """``rankscope ARGUMENTS`` going on beside the test; ended with the block."""
    process = subprocess.Popen(
        [*RANKSCOPE, *arguments],
        env=environment(home, **env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
