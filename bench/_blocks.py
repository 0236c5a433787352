"""Blocks of steps with something on alternate with blocks with it off, in one run of two ranks.

A pair is two blocks that follow each other, its ratio that of their mean step times (what is done
at every fourth step must count); pairs of two blocks with it off, half as many, show what the same
program measures against itself. The order within a pair flips, so that what drifts, drifts for
both. Hub and sentinel run beside the ranks all the time.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import _threads

STEPS_A_BLOCK = 18
SKIPPED = 3  # after a switch: hooks are placed anew, and what they know is worked out again
WARM_STEPS = 8
RANKS = 2

Step = Callable[[int], float]
"""Trains one step on a batch of that size; the seconds that it took."""


# --- in the ranks ------------------------------------------------------------------------------


def agreed(value: float) -> float:
    """The largest of the ranks' values, so that all take the same decisions."""
    import torch
    import torch.distributed as dist

    tensor = torch.tensor(value)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return float(tensor)


def square_layers(width: int) -> Any:
    """The model of the benches that train: six layers of ``width`` × ``width``.

    In a process that has a gloo group from then on, one thread and a seed, all ranks the same.
    """
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(6):
        layers += [torch.nn.Linear(width, width), torch.nn.GELU()]
    return torch.nn.Sequential(*layers)


def training(model: Any, width: int) -> tuple[Any, Step]:
    """An optimizer of ``model``, and its step on a random batch."""
    import torch
    import torch.distributed as dist

    torch.manual_seed(dist.get_rank())  # each rank trains on data of its own
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step(batch: int) -> float:
        began_s = time.perf_counter()
        optimizer.zero_grad()
        loss: Any = model(torch.randn(batch, width)).pow(2).mean()
        loss.backward()
        optimizer.step()
        return time.perf_counter() - began_s

    return optimizer, step


def batch_for(step: Step, step_s: float, batch: int = 16) -> int:
    """A batch size with which a step takes about ``step_s`` or more."""
    for _ in range(WARM_STEPS):  # the first ones are slow at any size
        step(batch)
    for _ in range(8):
        took_s = agreed(min(step(batch) for _ in range(3)))
        if took_s >= step_s:
            break
        batch = int(batch * min(2.0, step_s / took_s * 1.15)) + 1
    return batch


def settle(step: Step, batch: int, seconds: float = 5.0) -> None:
    """Train until hub and sentinel have found their feet."""
    until_s = time.perf_counter() + seconds
    while agreed(until_s - time.perf_counter()) > 0:
        step(batch)


def alternate(
    step: Step,
    batch: int,
    kind: str,
    switch: Callable[[bool], None],
    costs_s: Callable[[], tuple[float, float]],
    pairs: int,
    budget_s: float,
) -> list[dict[str, Any]]:
    """``pairs`` of blocks of ``kind``, on and off, and half as many of off against off.

    What is measured is on at first and at the end. ``costs_s`` is asked around each step for
    (bookkeeping, kernels) so far. Ends early when ``budget_s`` are over, on all ranks alike.
    """
    schedule: list[tuple[str, bool]] = []
    for index in range(pairs):
        order = [True, False] if index % 2 else [False, True]
        schedule += [(kind, on) for on in order]
        if index % 2:
            schedule += [("self", False), ("self", False)]
    blocks: list[dict[str, Any]] = []
    is_on, cpu_s, began_block_s = True, 0.0, 0.0
    others: dict[str, int] = {}
    watching: _threads.Spent = {}
    began_s = time.perf_counter()
    for index, (block, on) in enumerate(schedule):
        if index % 6 == 0 and agreed(time.perf_counter() - began_s) > budget_s:
            break
        if on != is_on:
            is_on = on
            switch(on)
        steps, costs = [], [costs_s()]
        for number in range(STEPS_A_BLOCK):
            if number == SKIPPED:
                if len(others) < 2 and os.environ["RANK"] == "0":  # once for all ranks
                    others = _threads.hub_and_sentinel()
                watching = _threads.watching(others)
                cpu_s, began_block_s = time.process_time(), time.perf_counter()
            steps.append(step(batch))
            costs.append(costs_s())
        ended_cpu_s, took_s = time.process_time(), time.perf_counter() - began_block_s
        watched = _threads.since(watching, _threads.watching(others))
        bookkeeping_s, kernel_s = (
            [b - a for a, b in pairwise(one)] for one in zip(*costs, strict=True)
        )
        blocks.append(
            {
                "kind": block,
                "on": on,
                "step_s": statistics.fmean(steps[SKIPPED:]),
                "cpu_s": (ended_cpu_s - cpu_s) / (STEPS_A_BLOCK - SKIPPED),
                "watching": watched,
                "block_s": took_s,
                "bookkeeping_s": bookkeeping_s[SKIPPED:],
                "kernel_s": kernel_s[SKIPPED:],
            }
        )
    if not is_on:
        switch(True)
    return blocks


def leave(folder: Path, result: dict[str, Any], close: Callable[[], None]) -> None:
    """Put what this rank measured into ``folder``, and end together with the others."""
    import torch.distributed as dist

    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(result))
    close()
    dist.barrier()
    time.sleep(0.2)  # gloo's thread lets go of the last operation
    dist.destroy_process_group()


# --- around them -------------------------------------------------------------------------------


def measure(folder: Path, name: str, arguments: list[str]) -> list[dict[str, Any]]:
    """Start a hub, and the ranks under torchrun with ``arguments`` (a script and its options).

    Waits for their end; what each rank has left in ``folder``.
    """
    import zmq

    from rankscope.protocol import codec, env, launch, rundir
    from rankscope.protocol.messages import RunEnd

    directory = rundir.create(folder / "runs", name, command=sys.argv, name=name, now_s=time.time())
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
        command += ["--nproc-per-node", str(RANKS), *arguments]
        subprocess.run(command, env=environ, check=True)
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
    """One ratio a pair: of the ranks' sums, the first (with it on) over the second block."""
    blocks = [[block for block in one["blocks"] if block["kind"] == kind] for one in ranks]
    found: list[float] = []
    for first, second in zip(
        zip(*(one[::2] for one in blocks), strict=True),
        zip(*(one[1::2] for one in blocks), strict=True),
        strict=True,
    ):
        # The block with it on goes on top; of equal ones, each in turn, as there the order is.
        if not first[0]["on"] and (kind != "self" or len(found) % 2):
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
