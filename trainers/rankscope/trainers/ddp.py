"""Train with DistributedDataParallel: every rank has the whole model and a part of the data.

``torchrun --nproc-per-node 2 -m rankscope.trainers.ddp``, or ``python -m rankscope.trainers.ddp``
for one plain process.
"""

import math
from argparse import ArgumentParser, Namespace
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rankscope.protocol.exits import UserError
from rankscope.trainers.compiling import compile_blocks
from rankscope.trainers.config import Config
from rankscope.trainers.launch import Place, Ranks
from rankscope.trainers.model import Shape, Transformer, initialise
from rankscope.trainers.parallel import Parallel, Trainer
from rankscope.trainers.precision import autocast
from rankscope.trainers.program import start
from rankscope.trainers.recompute import recompute


def add_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("DDP")
    group.add_argument(
        "--bucket-mb",
        type=float,
        metavar="MIB",
        help="gradients that are reduced together (default 25, of which the first has 1)",
    )
    group.add_argument(
        "--find-unused-parameters",
        action="store_true",
        help="look in each forward for parameters that will have no gradient (this model has none)",
    )
    group.add_argument(
        "--static-graph",
        action="store_true",
        help="promise that every step uses the same parameters in the same order",
    )


def check(config: Config, options: Namespace, place: Place) -> None:
    del place
    size = options.bucket_mb
    if size is not None and not (size > 0 and math.isfinite(size)):
        raise UserError(f"--bucket-mb is {size}; it must be a positive number")
    if options.static_graph and config.accumulate > 1:
        raise UserError(
            "--static-graph cannot be had with --accumulate: DDP learns the graph from a first "
            "step that reduces every microbatch; leave one of them out"
        )
    if options.static_graph and options.find_unused_parameters:
        raise UserError(
            "--static-graph finds unused parameters itself, once; leave out "
            "--find-unused-parameters"
        )


def parallelise(config: Config, options: Namespace, place: Place, device: torch.device) -> Parallel:
    """The whole model on every rank, its gradients averaged by DDP; bare in a plain process."""
    model = Transformer(Shape(config.seq_len, config.layers, config.dim, config.heads)).to(device)
    initialise(model, config.layers, config.seed)
    compile_blocks(model.blocks, config.compile)
    recompute(model.blocks, config.recompute)
    cast = partial(autocast, config.precision, device)
    if not place.launched:
        return Parallel(model, Ranks(0, 1, None), lambda last: nullcontext(), cast)
    replica = DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,  # one copy of the gradients, not two
        bucket_cap_mb=options.bucket_mb,
        find_unused_parameters=options.find_unused_parameters,
        static_graph=options.static_graph,
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
