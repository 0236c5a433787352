"""One rank of test_gradients: gradients of one update, as the trainer named in argv[1] makes them.

argv[2] is the folder that rank 0 writes its results to. The microbatches come from ``case``, which
the test uses as well.
"""

import importlib
import json
import sys
from argparse import ArgumentParser
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from rankscope.trainers.clip import clip_gradients
from rankscope.trainers.config import Config
from rankscope.trainers.data import IGNORED, Batch
from rankscope.trainers.launch import Place, process_group
from rankscope.trainers.loop import accumulate
from rankscope.trainers.objective import valid_tokens
from rankscope.trainers.parallel import Trainer

CONFIG = Config(seq_len=8, layers=2, dim=32, heads=4, batch_size=3)
VALID = {
    "full": [[24, 24], [24, 24], [24, 24], [24, 24]],
    "unequal": [[24, 2], [5, 17], [1, 0], [0, 23]],
    "one rank without": [[24, 3], [0, 0], [7, 7], [0, 1]],
    "one microbatch": [[6], [2], [3], [0]],
}
"""Case to rank to microbatch to number of valid tokens, for up to four ranks."""


def case(name: str, rank: int) -> list[Batch]:
    """The microbatches of ``rank`` in case ``name``."""
    window = []
    for number, valid in enumerate(VALID[name][rank]):
        generator = torch.Generator().manual_seed(100 * rank + number)
        tokens = torch.randint(1, 256, (3, 9), generator=generator)
        targets = tokens[:, 1:].clone()
        targets.view(-1)[torch.randperm(24, generator=generator)[valid:]] = IGNORED
        window.append((tokens[:, :-1].contiguous(), targets))
    return window


def recorded() -> list[str]:
    """The collectives of this rank so far, by the flight recorder."""
    dump_json = getattr(torch._C._distributed_c10d, "_dump_fr_trace_json")  # noqa: B009, no stub
    dump = json.loads(dump_json(includeCollectives=True))
    return [entry["profiling_name"] for entry in dump.get("entries", [])]


def full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def main() -> None:
    trainer: Trainer = importlib.import_module(f"rankscope.trainers.{sys.argv[1]}").TRAINER
    parser = ArgumentParser()
    trainer.add_options(parser)
    options = parser.parse_args(sys.argv[3:])
    place, device = Place.from_environment(), torch.device("cpu")
    results: dict[str, object] = {}
    with process_group(place, device):
        for name in VALID:
            parallel = trainer.parallelise(CONFIG, options, place, device)
            window = case(name, place.rank)
            tokens = int(parallel.ranks.sum(torch.tensor(valid_tokens(window))))
            before = len(recorded())
            loss = accumulate(parallel, window, tokens, device)
            during = recorded()[before:]
            loss = parallel.ranks.sum(loss) / parallel.ranks.size
            gradients = {
                name.removeprefix("module."): full(p.grad).clone()
                for name, p in parallel.model.named_parameters()
                if p.grad is not None
            }
            norm = clip_gradients(parallel.model.parameters(), 0.01)
            squares = torch.stack(
                [
                    full(p.grad).square().sum()
                    for p in parallel.model.parameters()
                    if p.grad is not None
                ]
            )
            results[name] = {
                "loss": loss,
                "gradients": gradients,
                "collectives": during,
                "norm": norm,
                "clipped": squares.sum().sqrt(),
                "placements": sorted(
                    {str(getattr(p, "placements", None)) for p in parallel.model.parameters()}
                ),
            }
        dist.barrier()
    if place.rank == 0:
        torch.save(results, Path(sys.argv[2]) / "results.pt")


if __name__ == "__main__":
    main()
