"""Makes the pictures of the documentation from real training runs on this machine.

    python docs/pictures/make_pictures.py [FOLDER]

Two runs of the DDP trainer with two ranks, one after the other: one with a slow loader on rank 1
that is asked for a checkpoint, and one whose rank 1 stands still for ever. What is drawn is what
the dashboard would show at that moment: the same screens, fed by the same hub.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rankscope.protocol.rundir import list_runs, runs_home
from rankscope.protocol.shapes import VIEWS, CheckpointsView, Status
from rankscope.tui import reach
from rankscope.tui.dashboard.action import ScreenName
from rankscope.tui.dashboard.navigation import Navigation
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.svg import svg
from rankscope.tui.dashboard.runwatch import RunWatch
from rankscope.tui.dashboard.screens.base import Room
from rankscope.tui.feed.poller import Poller, Snapshot
from rankscope.tui.runs import listed

SIZE = (100, 28)
PATIENCE_S = 300.0


class Studio:
    """Follows one run and draws its screens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        directory = list_runs(runs_home())[0]
        self.poller = Poller(lambda: reach.connect(directory, "viewer"), 0.2, lambda snapshot: None)
        self.directory = directory
        self.poller.start()

    def until(self, condition: Callable[[Snapshot], object], what: str) -> Snapshot:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            snapshot = self.poller.latest
            if snapshot.status is not None and condition(snapshot):
                return snapshot
            time.sleep(0.1)
        raise SystemExit(f"{what} did not come within {PATIENCE_S:.0f} s")

    def draw(
        self,
        name: str,
        screen: ScreenName = "overview",
        *,
        ready: Callable[[Snapshot], object] = lambda snapshot: True,
        size: tuple[int, int] = SIZE,
    ) -> None:
        """``name``.svg: ``screen`` as soon as its view is there and ``ready``."""
        watch = RunWatch(lambda: listed(runs_home()))
        navigation = Navigation(watch)
        if screen != "overview":
            navigation.go(screen)
        shown = navigation.screen
        first = Picture(self.until(lambda snapshot: True, "a status"))
        wanted = shown.view_wanted(first)
        self.poller.request_view(wanted)
        watch.wanted()
        snapshot = self.until(
            lambda one: (wanted is None or isinstance(one.view, VIEWS[wanted.view])) and ready(one),
            name,
        )
        while screen == "runs" and watch.latest is None:
            time.sleep(0.1)
        picture = Picture(snapshot, readonly=False)
        columns, rows = size
        lines = shown.layout(picture, Room(columns, rows, snapshot.taken_t_s)).lines(rows)
        path = self.folder / f"{name}.svg"
        path.write_text(svg(lines, columns, f"rankscope, the screen {screen}"), encoding="utf-8")
        print(f"{path}  {path.stat().st_size} bytes")

    def close(self) -> None:
        self.poller.stop()


@contextlib.contextmanager
def run(folder: Path, *trainer: str) -> Iterator[Studio]:
    """``rankscope run`` over two ranks of the DDP trainer until the block ends."""
    rankscope = str(Path(sys.executable).with_name("rankscope"))
    torchrun = ["torchrun", "--nnodes=1", "--nproc-per-node=2"]
    rendezvous = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
    small = ["--steps=100000", "--threads=1", "--layers=2", "--dim=64", "--seq-len=64"]
    command = ["-m", "rankscope.trainers.ddp", *small, *trainer]
    known = len(list_runs(runs_home()))
    process = subprocess.Popen(
        [rankscope, "run", "--", *torchrun, *rendezvous, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    try:
        while len(list_runs(runs_home())) == known:
            time.sleep(0.1)
        studio = Studio(folder)
        try:
            yield studio
        finally:
            studio.close()
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def finding(kind: str) -> Callable[[Snapshot], bool]:
    def found(snapshot: Snapshot) -> bool:
        status = snapshot.status
        return status is not None and any(one.kind == kind for one in status.findings)

    return found


def hangs(snapshot: Snapshot) -> bool:
    """It is known who holds the run up."""
    status: Status | None = snapshot.status
    verdict = None if status is None else status.verdict
    return verdict is not None and verdict.severity == "critical" and verdict.since_s > 3


def at_step(step: int) -> Callable[[Snapshot], bool]:
    return lambda snapshot: snapshot.status is not None and snapshot.status.step >= step


def is_saving(snapshot: Snapshot) -> bool:
    return isinstance(snapshot.view, CheckpointsView) and bool(snapshot.view.ranks)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rs-pictures-") as home:
        # By name, so that no picture shows where this interpreter is.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        # Where runs are kept by who has set nothing: suggested commands are as short as theirs.
        os.environ.pop("RANKSCOPE_HOME", None)
        os.environ |= {"XDG_STATE_HOME": home, "OMP_NUM_THREADS": "1", "PATH": path}
        saves = f"--checkpoint-dir={home}/saves"
        with run(folder, "--fault=loader-slow@1:60", saves, "--checkpoint-every=30") as studio:
            studio.draw("overview", ready=at_step(50))
            studio.draw("ranks", "ranks")
            studio.draw("steps", "steps", ready=finding("straggler"))
            with reach.connect(studio.directory, "operator") as client:
                client.command("checkpoint", author="ada@laptop")
            studio.draw("checkpoints", "checkpoints", ready=is_saving)
        with run(folder, "--fault=lock@1:12") as studio:
            studio.draw("trouble", ready=hangs)
            studio.draw("evidence", "evidence")
            studio.draw("stacks", "stacks")
            studio.draw("incidents", "incidents")
            studio.draw("runs", "runs")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent))
