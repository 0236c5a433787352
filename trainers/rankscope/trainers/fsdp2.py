"""Train with FSDP2: every rank keeps a shard of each parameter and has a part of the data.

``torchrun --nproc-per-node 2 -m rankscope.trainers.fsdp2``, or ``python -m
rankscope.trainers.fsdp2`` for one plain process.
"""

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from rankscope.protocol.exits import UserError
from rankscope.trainers.compiling import compile_blocks
from rankscope.trainers.config import Config
from rankscope.trainers.launch import Place, Ranks
from rankscope.trainers.model import Shape, Transformer, initialise
from rankscope.trainers.parallel import Parallel, Trainer
from rankscope.trainers.precision import DTYPES
from rankscope.trainers.program import start
from rankscope.trainers.recompute import recompute


def add_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("FSDP2")
    group.add_argument(
        "--reshard-after-forward",
        action=BooleanOptionalAction,
        default=True,
        help="free a block's parameters after forward and gather them again for backward",
    )
    group.add_argument(
        "--reduce-dtype",
        choices=tuple(DTYPES),
        default="fp32",
        help="what gradients are added up in over the ranks",
    )
    group.add_argument(
        "--replicas",
        type=int,
        default=1,
        help="HSDP: so many copies of the model, each sharded over its part of the ranks",
    )
    group.add_argument(
        "--shards",
        type=int,
        help="parts of each copy (default: as many as there are ranks for one)",
    )


def check(config: Config, options: Namespace, place: Place) -> None:
    del config
    ranks, replicas, shards = place.world_size, options.replicas, options.shards
    if replicas < 1 or ranks % replicas:
        raise UserError(
            f"--replicas {replicas} does not divide {ranks} ranks; use a number that does"
        )
    if shards is not None and replicas * shards != ranks:
        raise UserError(
            f"a mesh of {replicas} × {shards} (--replicas × --shards) does not have {ranks} ranks; "
            f"start {replicas * shards} of them or leave out --shards"
            if shards > 0
            else f"--shards is {shards}; it must be at least 1"
        )


def device_mesh(device: torch.device, world_size: int, replicas: int) -> DeviceMesh:
    """All ranks in one row to shard over, or in ``replicas`` rows that are copies of each other."""
    if replicas == 1:
        return init_device_mesh(device.type, (world_size,), mesh_dim_names=("shard",))
    return init_device_mesh(
        device.type,
        (replicas, world_size // replicas),
        mesh_dim_names=("replicate", "shard"),
    )


def parallelise(config: Config, options: Namespace, place: Place, device: torch.device) -> Parallel:
    """Each block, and what is left of the model, sharded; no rank ever holds the whole model."""
    mesh = device_mesh(device, place.world_size, options.replicas)
    policy = MixedPrecisionPolicy(
        param_dtype=DTYPES[config.precision], reduce_dtype=DTYPES[options.reduce_dtype]
    )
    with torch.device("meta"):
        model = Transformer(Shape(config.seq_len, config.layers, config.dim, config.heads))
    compile_blocks(model.blocks, config.compile)
    recompute(model.blocks, config.recompute)
    shard = partial(
        fully_shard,
        mesh=mesh,
        mp_policy=policy,
        reshard_after_forward=options.reshard_after_forward,
    )
    for block in model.blocks:
        shard(block)
    sharded = shard(model)  # embeddings, last norm and head; the same object as ``model``
    model.to_empty(device=device)
    initialise(model, config.layers, config.seed)

    @contextmanager
    def microbatch(last: bool) -> Iterator[None]:
        sharded.set_requires_gradient_sync(last)
        yield

    ranks = Ranks(dist.get_rank(), mesh.size(), dist.group.WORLD)
    return Parallel(model, ranks, microbatch)


TRAINER = Trainer(
    module="rankscope.trainers.fsdp2",
    what="FSDP2",
    add_options=add_options,
    check=check,
    parallelise=parallelise,
    group_when_alone=True,
)

if __name__ == "__main__":
    start(TRAINER)
