"""How many step boundaries lie between a key press and the agreed one; what an ordinary one costs.

Two real ranks train under ``rankscope run``, in steps of about 0.15 s. Before each step ends a rank
writes its number to a file; the number read there when the command is sent is what the agreed
boundary is counted from.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from _figure import figure, load

from rankscope.agent.control.control import Control
from rankscope.protocol.rundir import RunDirectory
from rankscope.protocol.shapes import CheckpointsView, Status
from rankscope.tui import asking, source
from rankscope.tui.feed.client import HubClient

ROUNDS = 5
STEP_S = 0.15
RANKS = 2
PATIENCE_S = 180.0
BOUNDARIES = 200_000
Found = TypeVar("Found")
RANKSCOPE = str(Path(sys.executable).with_name("rankscope"))

TRAINING = """
import os, sys, time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from rankscope.agent import attach
from rankscope.agent.checkpoint import Checkpointer
folder, step_s = sys.argv[1], float(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
saver = Checkpointer(state={"model": model}, dir=f"{folder}/saved")
here = os.open(f"{folder}/{dist.get_rank()}", os.O_WRONLY | os.O_CREAT)
with attach(model, optimizer, checkpoint=saver) as agent:
    step, goes_on = 0, True
    while goes_on:
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(step_s)
        step += 1
        os.pwrite(here, b"%12d" % step, 0)
        goes_on = agent.end_step()
    saver.wait()
dist.barrier()
time.sleep(0.2)
dist.destroy_process_group()
"""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="rankscope-bench-") as name:
        folder = Path(name)
        environ = {**os.environ, "RANKSCOPE_HOME": name, "OMP_NUM_THREADS": "1"}
        (folder / "train.py").write_text(TRAINING)
        command = [RANKSCOPE, "run", "--", sys.executable, "-m", "torch.distributed.run"]
        command += ["--standalone", "--nproc-per-node", str(RANKS), str(folder / "train.py")]
        command += [name, str(STEP_S)]
        with subprocess.Popen(
            command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as run:
            try:
                measure(folder)
            except BaseException:
                run.terminate()
                raise
    figure("control.boundary", ordinary_us(), "us", None, boundaries=BOUNDARIES)
    return 0


def measure(folder: Path) -> None:
    """One figure for each command; the last one ends the run."""
    directory = until(lambda: RunDirectory((folder / "runs" / "latest").resolve(strict=True)))
    endpoint = until(lambda: directory.read_info().endpoint or "")
    with HubClient(endpoint, directory.read_key("operator")) as client:
        until(lambda: all_there(client))
        taken: dict[str, list[int]] = {"checkpoint": [], "pause": [], "stop": []}
        for _ in range(ROUNDS):
            taken["checkpoint"].append(boundaries(client, folder, "checkpoint"))
            taken["pause"].append(boundaries(client, folder, "pause"))
            client.command("resume", author="bench")
            until(lambda: source.ask(client, "checkpoints", CheckpointsView).command is None)
        taken["stop"].append(boundaries(client, folder, "stop"))
    for command, limit in (("checkpoint", 2), ("pause", 3), ("stop", 3)):
        found = taken[command]
        figure(
            f"control.{command}",
            max(found),
            "step boundaries",
            limit,
            each=found,
            median=statistics.median(found),
            step_s=STEP_S,
            **load(),
        )


def all_there(client: HubClient) -> bool:
    status = source.ask(client, "status", Status)
    view = source.ask(client, "checkpoints", CheckpointsView)
    ready = view.possible.get("checkpoint") == ""
    return ready and len(status.ranks) == RANKS and status.step >= 3


def boundaries(client: HubClient, folder: Path, command: str) -> int:
    """From the last boundary of any rank at the key press to the one that is agreed on."""
    pressed = max(int((folder / str(rank)).read_text()) for rank in range(RANKS))
    reply = client.command(command, author="bench")
    assert reply.accepted, reply.text
    found, _ = asking.await_end(client, "checkpoint", reply.reference, PATIENCE_S)
    assert found.step is not None, found
    return found.step - pressed


def ordinary_us() -> float:
    """Of a boundary without a request, the call alone."""
    control = Control(0, "bench", lambda: (0, 1), object)
    begun_s = time.perf_counter()
    for _ in range(BOUNDARIES):
        control.boundary()
    return (time.perf_counter() - begun_s) / BOUNDARIES * 1e6


def until(condition: Callable[[], Found]) -> Found:
    """The first true value of ``condition``."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            found = condition()
        except Exception:  # noqa: BLE001 - the run is not up yet
            pass
        else:
            if found:
                return found
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
