"""Train with DistributedDataParallel: every rank has the whole model and a part of the data.

``torchrun --nproc-per-node 2 -m rankscope.trainers.ddp``, or ``python -m rankscope.trainers.ddp``
for one plain process.
"""

from argparse import ArgumentParser, Namespace
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rankscope.trainers.config import Config
from rankscope.trainers.launch import Place, Ranks
from rankscope.trainers.model import Shape, Transformer, initialise
from rankscope.trainers.parallel import Parallel, Trainer
from rankscope.trainers.precision import autocast
from rankscope.trainers.program import start


def add_options(parser: ArgumentParser) -> None:
    del parser


def check(config: Config, options: Namespace, place: Place) -> None:
    del config, options, place


def parallelise(config: Config, options: Namespace, place: Place, device: torch.device) -> Parallel:
    """The whole model on every rank, its gradients averaged by DDP; bare in a plain process."""
    del options
    model = Transformer(Shape(config.seq_len, config.layers, config.dim, config.heads)).to(device)
    initialise(model, config.layers, config.seed)
    cast = partial(autocast, config.precision, device)
    if not place.launched:
        return Parallel(model, Ranks(0, 1, None), lambda last: nullcontext(), cast)
    replica = DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,  # one copy of the gradients, not two
    )

    def microbatch(last: bool) -> AbstractContextManager[object]:
        return nullcontext() if last else replica.no_sync()

    group = replica.process_group
    ranks = Ranks(dist.get_rank(group), dist.get_world_size(group), group)
    return Parallel(replica, ranks, microbatch, cast)


TRAINER = Trainer(
    module="rankscope.trainers.ddp",
    what="DDP",
    add_options=add_options,
    check=check,
    parallelise=parallelise,
)

if __name__ == "__main__":
    start(TRAINER)
