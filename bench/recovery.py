"""How soon a killed hub answers again, and how soon a death or a stop is a verdict.

Four real ranks train under ``rankscope run``. The hub is killed with -9 several times while a
client with an open connection asks for the status; then one rank is stopped and continued several
times, and at last another is killed with -9. Each figure is the longest of its repetitions.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from _figure import figure

from rankscope.protocol.exits import UserError
from rankscope.protocol.restart import STEADY_S
from rankscope.protocol.rundir import RunDirectory
from rankscope.protocol.shapes import Status
from rankscope.tui.feed.client import HubClient

T = TypeVar("T")
RANKS = 4
REPEATS = 5
LIMIT_S = 2.0
ASK_EVERY_S = 0.02
PATIENCE_S = 90.0
RANKSCOPE = str(Path(sys.executable).with_name("rankscope"))
TRAINING = [
    *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={RANKS}"),
    *("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"),
    *("-m", "rankscope.trainers.ddp", "--steps", "1000000"),
]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rankscope-bench-") as home:
        environ = {**os.environ, "RANKSCOPE_HOME": home, "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(
            [RANKSCOPE, "run", "--", *TRAINING],
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as run:
            try:
                measure(home)
            finally:
                run.terminate()


def measure(home: str) -> None:
    latest = Path(home, "runs", "latest")
    wait(lambda: latest.exists() and RunDirectory(latest.resolve()).read_info().hub)
    directory = RunDirectory(latest.resolve())
    endpoint = directory.read_info().endpoint
    assert endpoint is not None
    with HubClient(endpoint, directory.read_key("viewer")) as client:
        wait(lambda: running(status(client)))
        hub_back_s = []
        for _ in range(REPEATS):
            time.sleep(STEADY_S)  # a hub that dies soon after its start is taken for a crash loop
            hub_back_s.append(hub_killed(directory, client))
        stopped_s = [rank_stopped(client, 1) for _ in range(REPEATS)]
        pid = pid_of(client, 2)
        dead_s = timed(lambda: os.kill(pid, signal.SIGKILL), client, lambda s: is_named(s, 2))
    detail = {"ranks": RANKS, "load_1min": os.getloadavg()[0]}
    figure("recovery/hub_back", max(hub_back_s), "s", LIMIT_S, each=hub_back_s, **detail)
    figure("recovery/rank_stopped", max(stopped_s), "s", LIMIT_S, each=stopped_s, **detail)
    figure("recovery/rank_dead", dead_s, "s", LIMIT_S, **detail)


def hub_killed(directory: RunDirectory, client: HubClient) -> float:
    """Kill the hub; until a status comes in which every rank is heard and has gone on."""
    process = directory.read_info().hub
    assert process is not None
    before = wait(lambda: status(client))
    return timed(
        lambda: os.kill(process.pid, signal.SIGKILL),
        client,
        lambda s: len(s.ranks) == RANKS and s.step >= before.step and running(s),
        later=lambda: directory.read_info().hub != process,
    )


def rank_stopped(client: HubClient, rank: int) -> float:
    pid = pid_of(client, rank)
    took_s = timed(
        lambda: os.kill(pid, signal.SIGSTOP),
        client,
        lambda s: bool(
            s.verdict and s.verdict.kind == "rank-stopped" and s.verdict.ranks == [rank]
        ),
    )
    os.kill(pid, signal.SIGCONT)
    wait(lambda: running(status(client)))
    return took_s


def is_named(now: Status, rank: int) -> bool:
    verdict = now.verdict
    return bool(
        verdict
        and verdict.kind == "rank-dead"
        and verdict.ranks == [rank]
        and "SIGKILL" in verdict.headline
    )


def running(now: Status | None) -> bool:
    return bool(
        now
        and now.state == "running"
        and not now.findings
        and len(now.ranks) == RANKS
        and min(row.step for row in now.ranks) >= 3
    )


def status(client: HubClient) -> Status | None:
    try:
        body = client.ask("status", timeout_s=0.5).body
    except UserError:
        return None
    return body if isinstance(body, Status) else None


def pid_of(client: HubClient, rank: int) -> int:
    now = wait(lambda: status(client))
    return next(row.pid for row in now.ranks if row.rank == rank and row.pid is not None)


def timed(
    act: Callable[[], None],
    client: HubClient,
    seen: Callable[[Status], bool],
    later: Callable[[], bool] = lambda: True,
) -> float:
    """Seconds from ``act`` to the first status that ``seen`` accepts, once ``later`` holds."""
    act()
    began_s = time.monotonic()

    def check() -> bool:
        now = status(client)
        return now is not None and seen(now) and later()

    wait(check)
    return time.monotonic() - began_s


def wait(condition: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            sys.exit("bench/recovery: what was waited for did not come")
        time.sleep(ASK_EVERY_S)


if __name__ == "__main__":
    main()
