"""A fleet of synthetic agents: real frames over real CURVE sockets to a real hub, no training.

``with fleet(directory, ranks=16_384) as ranks`` starts one process that plays all ranks and a
sentinel for each eight of them, many on one connection. As a program of its own it plays them
for a run directory that has a hub, and reads what shall go wrong from standard input:

    kill 77     the process of rank 77 dies of SIGKILL, its sentinel says so; the others wait
    stop 77     it is stopped; its sentinel says so
    hang 77     it stays in its loader, and the others wait for it in backward
    nan 77      its gradient is NaN from now on
    lose 77     its node is cut off: no rank on it and no sentinel says anything
    share 0.5   from now on half of the ranks have something new each half second

A rank that has nothing new beats every two seconds: less often than a real one, so that the two
cores of a laptop can play 16,384. A hub that does not keep up is waited for.
Run directly it measures what such a fleet costs its hub.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import zmq
from _fleet import INTERVAL_S, Fleet

from rankscope.protocol.rundir import RunDirectory


class Ranks:
    """A fleet that is played by a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def tell(self, order: str) -> None:
        """Pass on a line such as ``kill 77``."""
        assert self.process.stdin is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()


@contextmanager
def fleet(
    directory: RunDirectory, *, ranks: int, share: float = 0.01, gpus: bool = False
) -> Iterator[Ranks]:
    """Play ``ranks`` ranks of the run in ``directory``; all were introduced when this begins."""
    command = [sys.executable, __file__, "--run-dir", str(directory.path), "--ranks", str(ranks)]
    command += ["--share", str(share), *(["--gpus"] if gpus else [])]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "the fleet did not start"
        yield Ranks(process)
    finally:
        process.terminate()
        process.wait(30)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def serve(given: argparse.Namespace) -> None:
    """Play until the end of standard input."""
    directory = RunDirectory(given.run_dir.resolve())
    info = directory.read_info()
    assert info.endpoint is not None, "this run has no hub"
    poller = zmq.Poller()
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    with Fleet(
        info.run,
        info.endpoint,
        directory.read_key("agent"),
        ranks=given.ranks,
        share=given.share,
        gpus=given.gpus,
    ) as played:
        played.introduce()
        print("introduced", flush=True)
        due_s = time.monotonic()
        while True:
            played.play()
            # A machine that cannot keep up plays slower instead of piling up.
            due_s = max(due_s + INTERVAL_S, time.monotonic())
            while True:  # orders are looked for at least once, also by a fleet that is late
                wait_s = max(0.0, due_s - time.monotonic())
                if not poller.poll(int(wait_s * 1000) + 1):
                    break
                order = sys.stdin.readline().split()
                if not order:
                    return
                if order[0] == "share":
                    played.share = float(order[1])
                else:
                    played.trouble(order[0], int(order[1]))


def measure(sizes: list[int]) -> None:
    """What each size costs its hub, and how long a status takes it meanwhile."""
    import tempfile

    import _figure
    import psutil

    from rankscope.protocol.launch import wait_for_hub
    from support.wire import Hub, new_run, spawn

    for ranks in sizes:
        with tempfile.TemporaryDirectory() as folder:
            hub = Hub(new_run(Path(folder)), ())
            hub.process = spawn(hub.directory)
            hub.info = wait_for_hub(hub.directory, hub.process, 120.0)
            try:
                with fleet(hub.directory, ranks=ranks), hub.connect("viewer") as viewer:
                    time.sleep(3.0)
                    process = psutil.Process(hub.process.pid)
                    before, start_s = sum(process.cpu_times()[:2]), time.monotonic()
                    delays = []
                    version = viewer.ask("status").version
                    while time.monotonic() - start_s < 10.0:
                        asked_s = time.monotonic()
                        version = viewer.ask("status", since=version).version
                        delays.append(time.monotonic() - asked_s)
                        time.sleep(0.5)
                    spent_s = sum(process.cpu_times()[:2]) - before
                    status = viewer.status()
                    share = spent_s / (time.monotonic() - start_s)
                    _figure.figure(
                        "fleet_hub_cpu",
                        round(100 * share, 1),
                        "% of a core",
                        100.0,
                        ranks=ranks,
                        share_changing=0.01,
                        status_ms=round(1000 * sorted(delays)[len(delays) // 2], 1),
                        resident_mb=round(process.memory_info().rss / 1e6, 1),
                        state=status.state,
                        findings=[finding.kind for finding in status.findings],
                        missed=sum(row.missed for row in status.ranks),
                        **_figure.load(),
                    )
            finally:
                hub.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-dir", type=Path, help="play for this run until stdin ends")
    parser.add_argument("--ranks", type=int, default=16_384)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--gpus", action="store_true", help="sentinels report eight GPUs each")
    given = parser.parse_args()
    if given.run_dir is not None:
        serve(given)
    else:
        measure([8, 512, given.ranks])


if __name__ == "__main__":
    main()
