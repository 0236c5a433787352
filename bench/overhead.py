"""What watching costs: step time and processor time with the agent over without, in one run.

Two DDP ranks on gloo train a model of about 10 million parameters. In one run, blocks of steps
with the agent alternate with blocks in which every hook of it is removed and its thread rests; hub
and sentinel run beside them all the time. A pair is two blocks that follow each other, its ratio
that of their median step times; pairs of two blocks without the agent show what the same program
measures against itself. ``--full`` measures five times as many pairs.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from _figure import figure

PAIRS = 36
STEPS_A_BLOCK = 5
SKIPPED = 1  # the first step after a switch warms caches up
BUDGET_S = 240.0
STEP_S = 0.12  # aimed at; the issue is with steps of 100 ms or more
WIDTH = 1280  # six layers of 1280 x 1280: 9.8 million parameters
RANKS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--full", action="store_true", help="five times as many pairs")
    parser.add_argument("--rank-to", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    pairs = PAIRS * (5 if options.full else 1)
    if options.rank_to is not None:
        rank(options.rank_to, pairs, BUDGET_S * (5 if options.full else 1))
        return
    with tempfile.TemporaryDirectory() as folder:
        report(measure(Path(folder), options.full))


# --- the ranks ---------------------------------------------------------------------------------


def rank(folder: Path, pairs: int, budget_s: float) -> None:
    """One rank: train through the schedule, and leave what was measured in ``folder``."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from rankscope.agent import attach

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(6):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step(batch: int) -> float:
        began_s = time.perf_counter()
        optimizer.zero_grad()
        loss: Any = model(torch.randn(batch, WIDTH)).pow(2).mean()
        loss.backward()
        optimizer.step()
        return time.perf_counter() - began_s

    def agreed(value: float) -> float:
        """The largest of the ranks' values, so that all take the same decisions."""
        tensor = torch.tensor(value)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return float(tensor)

    batch = 16
    for _ in range(8):
        took_s = agreed(min(step(batch) for _ in range(3)))
        if took_s >= STEP_S:
            break
        batch = int(batch * min(2.0, STEP_S / took_s * 1.15)) + 1
    agent = attach(model, optimizer, name="overhead")
    until_s = time.perf_counter() + 5.0  # hub and sentinel have found their feet by then
    while agreed(until_s - time.perf_counter()) > 0:
        step(batch)

    # On and off, and off against off, in turn; the order within a pair flips.
    schedule: list[tuple[str, bool]] = []
    for index in range(pairs):
        order = [True, False] if index % 2 else [False, True]
        schedule += [("agent", on) for on in order]
        schedule += [("self", False), ("self", False)]
    blocks: list[dict[str, Any]] = []
    observing = True
    began_s = time.perf_counter()
    for index, (kind, on) in enumerate(schedule):
        if index % 4 == 0 and agreed(time.perf_counter() - began_s) > budget_s:
            break
        if on != observing:
            observing = on
            (agent.resume_observing if on else agent.pause_observing)()
        cpu_s = time.process_time()
        steps, costs = [], [agent.costs_s()]
        for _ in range(STEPS_A_BLOCK):
            steps.append(step(batch))
            costs.append(agent.costs_s())
        bookkeeping_s, kernel_s = (
            [b - a for a, b in pairwise(one)] for one in zip(*costs, strict=True)
        )
        blocks.append(
            {
                "kind": kind,
                "on": on,
                "step_s": statistics.median(steps[SKIPPED:]),
                "cpu_s": (time.process_time() - cpu_s) / STEPS_A_BLOCK,
                "bookkeeping_s": bookkeeping_s[SKIPPED:],
                "kernel_s": kernel_s[SKIPPED:],
            }
        )
    parameters = sum(parameter.numel() for parameter in model.parameters())
    result = {"blocks": blocks, "batch": batch, "parameters": parameters}
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(result))
    agent.close()
    dist.barrier()
    time.sleep(0.2)  # gloo's thread lets go of the last operation
    dist.destroy_process_group()


# --- the run -----------------------------------------------------------------------------------


def measure(folder: Path, full: bool) -> list[dict[str, Any]]:
    """Start hub and ranks, wait for their end; what each rank has measured."""
    import zmq

    from rankscope.protocol import codec, env, launch, rundir
    from rankscope.protocol.messages import RunEnd

    directory = rundir.create(
        folder / "runs", "overhead", command=sys.argv, name="overhead", now_s=time.time()
    )
    hub = launch.spawn_hub(directory)
    try:
        info = launch.wait_for_hub(directory, hub)
        assert info.endpoint is not None
        environ = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            env.HOME: str(folder),
            env.RUN: directory.run,
            env.ENDPOINT: info.endpoint,
            env.AGENT_KEY: str(directory.key_path("agent")),
        }
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(RANKS), __file__, "--rank-to", str(folder)]
        subprocess.run(command + (["--full"] if full else []), env=environ, check=True)
        key = directory.read_key("agent")
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 1000
            socket.curve_serverkey = key.hub_public.encode()
            socket.curve_publickey = key.public.encode()
            socket.curve_secretkey = key.secret.encode()
            socket.connect(info.endpoint)
            socket.send(codec.encode(RunEnd(0)))  # hub and sentinel end with it
        hub.wait(30)
    finally:
        if hub.poll() is None:
            hub.terminate()
            hub.wait()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


def ratios(ranks: list[dict[str, Any]], kind: str, what: str) -> list[float]:
    """One ratio a pair: of the ranks' sums, the first (with the agent) over the second block."""
    blocks = [[block for block in one["blocks"] if block["kind"] == kind] for one in ranks]
    found: list[float] = []
    for first, second in zip(
        zip(*(one[::2] for one in blocks), strict=True),
        zip(*(one[1::2] for one in blocks), strict=True),
        strict=True,
    ):
        # The block with the agent goes on top; of equal ones, each in turn, as there the order is.
        if not first[0]["on"] and (kind == "agent" or len(found) % 2):
            first, second = second, first
        found.append(sum(one[what] for one in first) / sum(one[what] for one in second))
    return found


def interval(values: list[float], draws: int = 4000) -> list[float]:
    """The 95 % bootstrap interval of the median."""
    generator = random.Random(1)
    medians = sorted(
        statistics.median(generator.choices(values, k=len(values))) for _ in range(draws)
    )
    return [round(medians[int(draws * 0.025)], 4), round(medians[int(draws * 0.975)], 4)]


def report(ranks: list[dict[str, Any]]) -> None:
    on = [block for one in ranks for block in one["blocks"] if block["on"]]
    off = [block for one in ranks for block in one["blocks"] if not block["on"]]
    run = {
        "ranks": len(ranks),
        "parameters": ranks[0]["parameters"],
        "batch": ranks[0]["batch"],
        "step_s": round(statistics.median(block["step_s"] for block in off), 4),
        "load_1min": round(os.getloadavg()[0], 2),
    }
    lines = (
        ("overhead.step_time", "agent", "step_s", 1.02),
        ("overhead.step_time_self", "self", "step_s", None),
        ("overhead.cpu_time", "agent", "cpu_s", None),
        ("overhead.cpu_time_self", "self", "cpu_s", None),
    )
    for bench, kind, what, limit in lines:
        values = ratios(ranks, kind, what)
        detail = {"interval_95": interval(values), "pairs": len(values), **run}
        figure(bench, round(statistics.median(values), 4), "ratio", limit, **detail)
    values = [cost_s * 1e6 for block in on for cost_s in block["bookkeeping_s"]]
    detail = {"interval_95": interval(values), "mean": round(statistics.fmean(values), 1)}
    bench = "overhead.bookkeeping"
    figure(bench, round(statistics.median(values), 1), "us/step", 100.0, **detail, **run)
    # The kernel runs at every n-th step: its cost a step is a mean over blocks.
    values = [statistics.fmean(block["kernel_s"]) * 1e6 for block in on]
    mean = round(statistics.fmean(values), 1)
    figure("overhead.norm_kernel", mean, "us/step", None, median=statistics.median(values), **run)


if __name__ == "__main__":
    main()
