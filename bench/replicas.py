"""What comparing replicas costs: the time its checks take, over the time of the steps.

Two DDP ranks on gloo train a model of about 10 million parameters (100 million under ``--full``);
how often which part of it is checked is left to the agent. Hub and sentinel run beside them.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import _blocks
from _figure import figure

MEASURED_S = 60.0
STEP_S = 0.12  # aimed at
WIDTHS = {False: 1280, True: 4096}  # six square layers: 9.8 and 100.7 million parameters
LIMIT_PERCENT = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--full", action="store_true", help="100 million parameters")
    parser.add_argument("--rank-to", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_to is not None:
        rank(options.rank_to, options.full)
        return
    with tempfile.TemporaryDirectory() as folder:
        arguments = [__file__, "--rank-to", folder, *(["--full"] if options.full else [])]
        report(_blocks.measure(Path(folder), "replicas", arguments))


def rank(folder: Path, full: bool) -> None:
    """One rank: train for a while, and leave what was measured in ``folder``."""
    from torch.nn.parallel import DistributedDataParallel

    from rankscope.agent import attach

    width = WIDTHS[full]
    model = DistributedDataParallel(_blocks.square_layers(width))
    optimizer, step = _blocks.training(model, width)
    batch = _blocks.batch_for(step, STEP_S)
    agent = attach(model, optimizer, name="replicas")
    _blocks.settle(step, batch)
    session: Any = agent._session
    probe = session.observer.probes["replicas"]
    cost_s, began_s, steps = probe.cost_s, time.perf_counter(), 0
    while _blocks.agreed(time.perf_counter() - began_s) < MEASURED_S:
        step(batch)
        steps += 1
    took_s = time.perf_counter() - began_s
    result = {
        "share": (probe.cost_s - cost_s) / took_s,
        "step_s": took_s / steps,
        "steps": steps,
        "batch": batch,
        "every": probe.every,
        "parts": probe.parts,
        "parameters": 6 * (width + 1) * width,
    }
    _blocks.leave(folder, result, agent.close)


def report(ranks: list[dict[str, Any]]) -> None:
    worst = max(ranks, key=lambda one: float(one["share"]))
    detail = {key: worst[key] for key in ("steps", "batch", "every", "parts", "parameters")}
    figure(
        "replicas.share_of_step",
        round(100 * worst["share"], 3),
        "percent",
        LIMIT_PERCENT,
        ranks=len(ranks),
        step_s=round(worst["step_s"], 4),
        load_1min=round(os.getloadavg()[0], 2),
        **detail,
    )


if __name__ == "__main__":
    main()
