"""What watching costs: step time and processor time with the agent over without, in one run.

Two DDP ranks on gloo train a model of about 10 million parameters. Blocks of steps with the agent
alternate with blocks in which every hook of it is removed and its thread rests (``_blocks``).
``--full`` measures five times as many pairs.
"""

import argparse
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import _blocks
from _figure import figure

PAIRS = 32
BUDGET_S = 240.0
STEP_S = 0.12  # aimed at; the issue is with steps of 100 ms or more
WIDTH = 1280  # six layers of 1280 x 1280: 9.8 million parameters


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
        arguments = [__file__, "--rank-to", folder, *(["--full"] if options.full else [])]
        report(_blocks.measure(Path(folder), "overhead", arguments))


def rank(folder: Path, pairs: int, budget_s: float) -> None:
    """One rank: train through the schedule, and leave what was measured in ``folder``."""
    from torch.nn.parallel import DistributedDataParallel

    from rankscope.agent import attach

    model = DistributedDataParallel(_blocks.square_layers(WIDTH))
    optimizer, step = _blocks.training(model, WIDTH)
    batch = _blocks.batch_for(step, STEP_S)
    agent = attach(model, optimizer, name="overhead")
    _blocks.settle(step, batch)
    batch = _blocks.batch_for(step, STEP_S, batch)  # what looked slow may have been the start

    def switch(on: bool) -> None:
        (agent.resume_observing if on else agent.pause_observing)()

    blocks = _blocks.alternate(step, batch, "agent", switch, agent.costs_s, pairs, budget_s)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    session: Any = agent._session
    every = session.observer.gradients.ledger.turns.every
    result = {"blocks": blocks, "batch": batch, "parameters": parameters, "every": every}
    _blocks.leave(folder, result, agent.close)


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
        values = _blocks.ratios(ranks, kind, what)
        detail = {"interval_95": _blocks.interval(values), "pairs": len(values), **run}
        figure(bench, round(statistics.median(values), 4), "ratio", limit, **detail)
    values = [cost_s * 1e6 for block in on for cost_s in block["bookkeeping_s"]]
    detail = {"interval_95": _blocks.interval(values), "mean": round(statistics.fmean(values), 1)}
    bench = "overhead.bookkeeping"
    figure(bench, round(statistics.median(values), 1), "us/step", 100.0, **detail, **run)
    # The kernel runs at every n-th step: its cost a step is a mean over blocks.
    values = [statistics.fmean(block["kernel_s"]) * 1e6 for block in on]
    mean = round(statistics.fmean(values), 1)
    looks = {"median": statistics.median(values), "large_gradients_at_every": ranks[0]["every"]}
    figure("overhead.norm_kernel", mean, "us/step", None, **looks, **run)
    # Of all processes together: where no core is to spare, training goes without it.
    block_s = sum(block["block_s"] for block in ranks[0]["blocks"] if block["on"])
    shares, wakes = (
        {
            part: round(sum(block["watching"].get(part, (0, 0))[at] for block in on) / block_s, 5)
            for part in sorted({part for block in on for part in block["watching"]})
        }
        for at in (0, 1)
    )
    shares_ms = {part: round(1e3 * share, 2) for part, share in shares.items()}
    value = round(sum(shares_ms.values()), 1)
    # Each time a thread wakes it finds the caches cold: that is most of what it costs.
    detail = {"wakes_per_s": {part: round(count, 1) for part, count in wakes.items()}}
    figure("overhead.beside", value, "ms of CPU/s", None, **shares_ms, **detail, **run)


if __name__ == "__main__":
    main()
