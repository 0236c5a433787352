"""One rank of test_gradients: updates of small models, as the trainers make them.

argv[1] is the folder that rank 0 writes its results to; the other arguments name set-ups among
``SETUPS``. The microbatches come from ``case``, which the test uses as well.
"""

import importlib
import json
import sys
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from rankscope.trainers.clip import clip_gradients
from rankscope.trainers.config import Config
from rankscope.trainers.data import IGNORED, Batch
from rankscope.trainers.launch import Place, process_group
from rankscope.trainers.loop import accumulate
from rankscope.trainers.objective import valid_tokens
from rankscope.trainers.parallel import Parallel, Trainer
from rankscope.trainers.precision import gradient_scaler

CPU = torch.device("cpu")
CONFIG = Config(seq_len=8, layers=2, dim=32, heads=4, batch_size=3)
SETUPS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "ddp": ("ddp", {}, ()),
    "ddp in small buckets": ("ddp", {}, ("--bucket-mb", "0.02")),
    "ddp recomputing all": ("ddp", {"recompute": "full"}, ()),
    "ddp recomputing some": ("ddp", {"recompute": "selective"}, ()),
    "ddp compiled": ("ddp", {"compile": "aot_eager", "recompute": "selective"}, ()),
    "ddp with a static graph": ("ddp", {}, ("--static-graph",)),
    "ddp in bf16": ("ddp", {"precision": "bf16"}, ()),
    "ddp in bf16 recomputing all": ("ddp", {"precision": "bf16", "recompute": "full"}, ()),
    "ddp in fp16": ("ddp", {"precision": "fp16"}, ()),
    "fsdp2": ("fsdp2", {}, ()),
    "fsdp2 without resharding": ("fsdp2", {}, ("--no-reshard-after-forward",)),
    "fsdp2 in two replicas": ("fsdp2", {}, ("--replicas", "2", "--shards", "2")),
    "fsdp2 recomputing all": ("fsdp2", {"recompute": "full"}, ()),
    "fsdp2 recomputing some": ("fsdp2", {"recompute": "selective"}, ()),
    "fsdp2 compiled": ("fsdp2", {"compile": "aot_eager", "recompute": "selective"}, ()),
    "fsdp2 in bf16": ("fsdp2", {"precision": "bf16"}, ()),
    "fsdp2 in bf16 recomputing all": ("fsdp2", {"precision": "bf16", "recompute": "full"}, ()),
    "fsdp2 in fp16": ("fsdp2", {"precision": "fp16"}, ()),
}
"""Set-up to trainer, shared settings and the trainer's own options."""

ONE_CASE = {
    "ddp compiled": "unequal",
    "fsdp2 compiled": "unequal",
    "ddp with a static graph": "one microbatch",
}
"""Set-ups with one case: compiling takes seconds, and a static graph knows no accumulation."""

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


def parallelise(setup: str, place: Place) -> Parallel:
    """A new model in ``setup``."""
    name, settings, arguments = SETUPS[setup]
    trainer: Trainer = importlib.import_module(f"rankscope.trainers.{name}").TRAINER
    parser = ArgumentParser()
    trainer.add_options(parser)
    config = replace(CONFIG, **settings)
    return trainer.parallelise(config, parser.parse_args(arguments), place, CPU)


def recorded() -> list[str]:
    """The collectives of this rank so far, by the flight recorder."""
    dump_json = getattr(torch._C._distributed_c10d, "_dump_fr_trace_json")  # noqa: B009, no stub
    dump = json.loads(dump_json(includeCollectives=True))
    return [entry["profiling_name"] for entry in dump.get("entries", [])]


def full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gradients(parallel: Parallel) -> dict[str, torch.Tensor]:
    """Whole gradients by the model's own names; a collective."""
    return {
        name.removeprefix("module."): full(parameter.grad).clone()
        for name, parameter in parallel.model.named_parameters()
        if parameter.grad is not None
    }


def precision(setup: str) -> str:
    return str(SETUPS[setup][1].get("precision", "fp32"))


def update(parallel: Parallel, setup: str, name: str, rank: int) -> dict[str, Any]:
    """Gradients of case ``name``, then clipped ones."""
    window = case(name, rank)
    tokens = int(parallel.ranks.sum(torch.tensor(valid_tokens(window))))
    before = len(recorded())
    scaler = gradient_scaler(precision(setup), CPU)
    loss = accumulate(parallel, window, tokens, CPU, scaler)
    during = recorded()[before:]
    for parameter in parallel.model.parameters():
        if parameter.grad is not None and scaler.is_enabled():
            parameter.grad.div_(scaler.get_scale())
    found = {
        "loss": parallel.ranks.sum(loss) / parallel.ranks.size,
        "gradients": gradients(parallel),
        "collectives": during,
        "norm": clip_gradients(parallel.model.parameters(), 0.01),
    }
    found["clipped"] = torch.stack([g.square().sum() for g in gradients(parallel).values()])
    return found


def layout(parallel: Parallel) -> dict[str, Any]:
    """How the parameters rest, and what a layer's output was computed in."""
    computed = []
    linear = parallel.model.get_submodule(
        "module.blocks.0.mlp.up" if hasattr(parallel.model, "module") else "blocks.0.mlp.up"
    )
    handle = linear.register_forward_hook(lambda module, args, out: computed.append(str(out.dtype)))
    with torch.no_grad(), parallel.autocast():
        parallel.model(torch.zeros(1, 8, dtype=torch.long))
    handle.remove()
    for _ in range(2):  # DDP puts its buckets together after the first backward
        before = len(recorded())
        parallel.model(torch.zeros(1, 8, dtype=torch.long)).sum().backward()
    parameters = list(parallel.model.parameters())
    return {
        "reductions": sum("reduce" in collective for collective in recorded()[before:]),
        "computed": computed,
        "rests": sorted({str(p.dtype) for p in parameters}),
        "placements": sorted({str(getattr(p, "placements", None)) for p in parameters}),
        "elements": sum(
            (p.to_local() if isinstance(p, DTensor) else p).numel() for p in parameters
        ),
    }


def overflow(parallel: Parallel, rank: int) -> list[list[bool]]:
    """Which parameters each rank changed in an update with an infinity in rank 0's part of one.

    With whole gradients every rank has the infinity, as after a reduction.
    """
    scaler = gradient_scaler("fp16", CPU)
    optimizer = torch.optim.SGD(parallel.model.parameters(), lr=1.0)
    window = case("full", rank)
    accumulate(parallel, window, 48 * parallel.ranks.size, CPU, scaler)
    parameters = list(parallel.model.parameters())
    before = [full(p.detach()).clone() for p in parameters]
    grad = parameters[-1].grad
    assert grad is not None
    if not isinstance(grad, DTensor):
        grad.view(-1)[0] = torch.inf
    elif rank == 0:
        grad.to_local().view(-1)[0] = torch.inf
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    changed = [
        not torch.equal(full(p.detach()), b) for p, b in zip(parameters, before, strict=True)
    ]
    everyone: list[list[bool]] = [[] for _ in range(parallel.ranks.size)]
    dist.all_gather_object(everyone, [*changed, scaler.get_scale() >= 65536.0])
    return everyone


def main() -> None:
    folder, setups = Path(sys.argv[1]), sys.argv[2:]
    place = Place.from_environment()
    results: dict[str, dict[str, Any]] = {}
    with process_group(place, CPU, when_alone=True):
        for setup in setups:
            results[setup] = {
                name: update(parallelise(setup, place), setup, name, place.rank)
                for name in VALID
                if ONE_CASE.get(setup, name) == name
            }
            if setup in ONE_CASE:
                continue
            results[setup]["layout"] = layout(parallelise(setup, place))
            if precision(setup) == "fp16":
                results[setup]["overflow"] = {
                    "changed": overflow(parallelise(setup, place), place.rank)
                }
    if place.rank == 0:
        torch.save(results, folder / "results.pt")


if __name__ == "__main__":
    main()
