"""What norms of gradients before reduction cost: step time with them over without, in one run.

Two ranks on gloo train a model of about 10 million parameters (100 million under ``--full``), with
DDP and with FSDP2. The agent observes all the time; blocks of steps with the gradients looked at
alternate with blocks without (``_blocks``).
"""

import argparse
import os
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import _blocks
from _figure import figure

PAIRS = 16
BUDGET_S = 100.0  # for each trainer: both within five minutes
STEP_S = 0.12  # aimed at; the issue is with steps of 100 ms or more
WIDTHS = {False: 1280, True: 4096}  # six square layers: 9.8 and 100.7 million parameters
TRAINERS = ("ddp", "fsdp2")
LIMIT = 1.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--full", action="store_true", help="100 million parameters")
    parser.add_argument("--trainer", choices=TRAINERS, help="this one only")
    parser.add_argument("--rank-to", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_to is not None:
        rank(options.rank_to, options.trainer, options.full)
        return
    for trainer in (options.trainer,) if options.trainer else TRAINERS:
        with tempfile.TemporaryDirectory() as folder:
            arguments = [__file__, "--rank-to", folder, "--trainer", trainer]
            arguments += ["--full"] if options.full else []
            report(trainer, _blocks.measure(Path(folder), "numerics", arguments))


def rank(folder: Path, trainer: str, full: bool) -> None:
    """One rank: train through the blocks, and leave what was measured in ``folder``."""
    from rankscope.agent import attach

    width = WIDTHS[full]
    model = wrapped(_blocks.square_layers(width), trainer)
    optimizer, step = _blocks.training(model, width)
    batch = _blocks.batch_for(step, STEP_S)
    agent = attach(model, optimizer, name="numerics")
    _blocks.settle(step, batch)
    batch = _blocks.batch_for(step, STEP_S, batch)  # what looked slow may have been the start
    session: Any = agent._session
    blocks = _blocks.alternate(
        step,
        batch,
        "norms",
        partial(switch, session.observer.probes["gradients"], model),
        agent.costs_s,
        PAIRS,
        BUDGET_S,
    )
    result = {"blocks": blocks, "batch": batch, "parameters": 6 * (width + 1) * width}
    _blocks.leave(folder, result, agent.close)


def wrapped(model: Any, trainer: str) -> Any:
    if trainer == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    for layer in model[::2]:
        fully_shard(layer)
    return fully_shard(model)


def switch(probe: Any, model: Any, on: bool) -> None:
    """Gradients are looked at, or not; all else of the agent goes on."""
    if on:
        probe.install()
        probe.watch_model(model, first=True)
    else:
        probe.uninstall()


def report(trainer: str, ranks: list[dict[str, Any]]) -> None:
    off = [block for one in ranks for block in one["blocks"] if not block["on"]]
    run = {
        "ranks": len(ranks),
        "parameters": ranks[0]["parameters"],
        "batch": ranks[0]["batch"],
        "step_s": round(statistics.median(block["step_s"] for block in off), 4),
        "load_1min": round(os.getloadavg()[0], 2),
    }
    for name, kind, what, limit in (
        ("step_time", "norms", "step_s", LIMIT),
        ("step_time_self", "self", "step_s", None),
        ("cpu_time", "norms", "cpu_s", None),
        ("cpu_time_self", "self", "cpu_s", None),
    ):
        values = _blocks.ratios(ranks, kind, what)
        detail = {"interval_95": _blocks.interval(values), "pairs": len(values), **run}
        value = round(statistics.median(values), 4)
        figure(f"numerics.{trainer}.{name}", value, "ratio", limit, **detail)


if __name__ == "__main__":
    main()
