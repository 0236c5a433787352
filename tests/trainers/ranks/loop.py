"""One of two ranks of test_loop: the step loop on data made for the purpose.

argv[1] is the folder that rank 0 writes its results to.
"""

import importlib
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, DistributedSampler

from rankscope.trainers.config import Config
from rankscope.trainers.data import IGNORED, Batch, Data
from rankscope.trainers.launch import Place, process_group
from rankscope.trainers.loop import accumulate, train
from rankscope.trainers.parallel import Parallel
from rankscope.trainers.precision import gradient_scaler
from rankscope.trainers.report import Report

CPU = torch.device("cpu")
CONFIG = Config(
    steps=3, batch_size=2, seq_len=8, layers=1, dim=16, heads=2, attach="none", accumulate=2
)


def batch(seed: int, valid: int) -> Batch:
    """Two sequences, ``valid`` of whose 16 tokens have a target."""
    tokens = torch.randint(1, 256, (2, 9), generator=torch.Generator().manual_seed(seed))
    targets = tokens[:, 1:].clone()
    targets.view(-1)[valid:] = IGNORED
    return tokens[:, :-1].contiguous(), targets


UNEVEN = [
    [batch(seed, 16) for seed in range(5)],
    [batch(10, 16), batch(11, 3)],
]
"""The microbatches of two ranks, the second of which has no more in the second update."""

GOOD = [batch(seed, 16) for seed in range(20, 26)]
NONE = [batch(seed, 0) for seed in (30, 31)]


def parallelise(trainer: str) -> Parallel:
    made = importlib.import_module(f"rankscope.trainers.{trainer}").TRAINER
    parser = ArgumentParser()
    made.add_options(parser)
    found: Parallel = made.parallelise(CONFIG, parser.parse_args([]), Place.from_environment(), CPU)
    return found


def trained(parallel: Parallel, batches: list[Batch], config: Config = CONFIG) -> list[Tensor]:
    """The parameters after ``config.steps`` updates on this rank's ``batches``, again and again."""
    optimizer = torch.optim.SGD(parallel.model.parameters(), lr=0.1)
    sampler: DistributedSampler[Batch] = DistributedSampler(
        batches,  # type: ignore[arg-type]
        num_replicas=1,
        rank=0,
        shuffle=False,
    )
    loader: DataLoader[Batch] = DataLoader(batches, batch_size=None, sampler=sampler)  # type: ignore[arg-type]
    report = Report(config, parallel.ranks.rank, None)
    train(config, parallel, optimizer, Data(sampler, loader, None), CPU, report, "test")
    return [
        (p.full_tensor() if isinstance(p, DTensor) else p).detach().clone()
        for p in parallel.model.parameters()
    ]


def example(parallel: Parallel) -> float:
    """The loss of two ranks with 2 and 6 tokens, of means 3 and 1."""
    count, mean = ((2, 3.0), (6, 1.0))[parallel.ranks.rank]
    given: Callable[[Tensor, Tensor], Tensor] = lambda logits, _: logits.sum() * 0 + count * mean  # noqa: E731
    loss = accumulate(
        replace(parallel, loss_sum=given), [batch(0, count)], 8, CPU, gradient_scaler("fp32", CPU)
    )
    return float(parallel.ranks.sum(loss) / parallel.ranks.size)


def on_both(value: object) -> list[Any]:
    everyone: list[Any] = [None, None]
    dist.all_gather_object(everyone, value)
    return everyone


def main() -> None:
    place = Place.from_environment()
    found: dict[str, dict[str, Any]] = {}
    with process_group(place, CPU, when_alone=False):
        for trainer in ("ddp", "fsdp2"):
            with_none = trained(parallelise(trainer), [*GOOD[:2], *NONE, *GOOD[2:]])
            without = trained(parallelise(trainer), GOOD)
            same = all(torch.equal(a, b) for a, b in zip(with_none, without, strict=True))
            joined = replace(CONFIG, uneven="join")
            found[trainer] = {
                "rejected": on_both(same),
                "joined": trained(parallelise(trainer), UNEVEN[place.rank], joined),
                "example": on_both(example(parallelise(trainer))),
            }
    if place.rank == 0:
        torch.save(found, Path(sys.argv[1]) / "results.pt")


if __name__ == "__main__":
    main()
