"""How soon something that happens in a rank can be seen, and how fast the command line answers.

One plain process trains under ``rankscope run``; each of its steps ends with a loss that names the
step, and the time of it on the machine's monotonic clock. A client with an open connection asks
for the status 50 times a second and notes when it first sees each value.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _figure import figure

from rankscope.protocol.rundir import RunDirectory
from rankscope.protocol.shapes import Status
from rankscope.tui.feed.client import HubClient
from rankscope.tui.feed.merge import Held, merge

EVENTS = 100
STARTS = 15
ASK_EVERY_S = 0.02
LIMIT_S = 0.3
RANKSCOPE = str(Path(sys.executable).with_name("rankscope"))

TRAINING = """
import json, random, sys, time, torch
from rankscope.agent import attach
events = int(sys.argv[1])
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
rng = random.Random(0)
with attach(model, optimizer) as agent:
    for step in range(1, events + 1):
        loss = model(torch.randn(8, 64)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(rng.uniform(0.05, 0.2))  # out of step with the agent's own pace
        print(json.dumps([step, time.monotonic()]), flush=True)
        agent.end_step(loss=loss.detach() * 0 + step + 0.5)
    time.sleep(1.0)
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rankscope-bench-") as home:
        environ = {**os.environ, "RANKSCOPE_HOME": home, "OMP_NUM_THREADS": "1"}
        command = [RANKSCOPE, "run", "--", sys.executable, "-c", TRAINING, str(EVENTS)]
        with subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as run:
            assert run.stdout is not None
            first = run.stdout.readline()
            directory = RunDirectory(Path(home, "runs", "latest").resolve())
            seen = watch(directory)
            starts = [start(environ) for _ in range(STARTS)]
            happened = dict(json.loads(line) for line in [first, *run.stdout])
    # A value that the next one overtook within one beat is seen when that one is.
    shown = {step: [at_s for at, at_s in seen.items() if at >= step] for step in happened}
    began_s = min(seen.values())
    latencies = sorted(
        min(shown[step]) - at_s for step, at_s in happened.items() if shown[step] and at_s > began_s
    )
    figure(
        "latency/event_to_view",
        statistics.median(latencies),
        "s",
        LIMIT_S,
        events=len(latencies),
        overtaken=len(happened) - len(seen),
        p95=latencies[int(0.95 * (len(latencies) - 1))],
        longest=latencies[-1],
        asked_every_s=ASK_EVERY_S,
    )
    figure(
        "latency/command_line_start",
        statistics.median(starts),
        "s",
        None,
        command="rankscope status --json",
        starts=STARTS,
        shortest=min(starts),
        bare_python=statistics.median(bare_start() for _ in range(STARTS)),
    )


def watch(directory: RunDirectory) -> dict[int, float]:
    """Step → when its loss was first seen in the status, on the monotonic clock."""
    info = directory.read_info()
    assert info.endpoint is not None
    seen: dict[int, float] = {}
    held: Held | None = None
    version = 0
    with HubClient(info.endpoint, directory.read_key("viewer")) as client:
        deadline = time.monotonic() + 120
        while EVENTS not in seen and time.monotonic() < deadline:
            began_s = time.monotonic()
            reply = client.ask("status", since=version)
            now_s = time.monotonic()
            version = reply.version
            if isinstance(reply.body, Status):
                held = merge(held, reply.body, reply.hub_s)
            for row in held.rows if held is not None else ():
                if row.loss is not None and row.loss == row.step + 0.5:
                    seen.setdefault(row.step, now_s)
            time.sleep(max(0.0, began_s + ASK_EVERY_S - time.monotonic()))
    return seen


def start(environ: dict[str, str]) -> float:
    """Wall time of one ``rankscope status --json`` of the live run, in seconds."""
    began_s = time.perf_counter()
    subprocess.run(
        [RANKSCOPE, "status", "--json"], env=environ, stdout=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - began_s


def bare_start() -> float:
    """Wall time of an interpreter that does nothing, in seconds."""
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - began_s


if __name__ == "__main__":
    main()
