"""Faults as the command line writes them, checked before there is a process group."""

from argparse import Namespace
from collections.abc import Callable

import torch

from rankscope.protocol import faults
from rankscope.protocol import faulttable as table
from rankscope.protocol.exits import UserError
from rankscope.protocol.faults import Fault, Spec
from rankscope.trainers.config import Config
from rankscope.trainers.launch import Place
from rankscope.trainers.model import Shape, Transformer

LONGEST_S = 86400.0
PHASES = ("data", "forward", "backward", "optimizer")
LOADER_FAULTS = {fault.name for fault in table.LOADER} | {"nan-input"}
IN_SAVES = {fault.name for fault in table.CHECKPOINT}
IN_BLOCKS = {
    *("nan-module", "nan-gradient", "sticky-nan", "gradient-outlier"),
    *("cast-overflow", "reduction-overflow"),
}
"""Placed by hooks that compiled blocks do not call."""


def check(config: Config, options: Namespace, place: Place) -> None:
    """Raise :class:`UserError` for a fault that this run cannot have."""
    for text in config.fault:
        spec = faults.parse(text, table.FAULTS)
        fault = faults.find(spec.name, table.FAULTS)
        faults.check(spec, fault, place.world_size, config.steps)
        check_argument(spec, fault, config, place.world_size)
        check_options(spec, config, options)
        if fault.least_ranks > 1 and not place.launched:
            raise UserError(f"fault {spec}: it takes ranks that torchrun started")


def check_argument(spec: Spec, fault: Fault, config: Config, ranks: int) -> None:
    """Raise :class:`UserError` when ``spec.where`` means nothing to ``fault``."""
    if not spec.where:
        return
    checks: dict[str, Callable[[], bool]] = {
        table.PHASE: lambda: spec.where in PHASES,
        table.SECONDS: lambda: 0 < float(spec.where) <= LONGEST_S,
        table.OTHER: lambda: int(spec.where) in set(range(ranks)) - {spec.rank},
        table.MICROBATCH: lambda: int(spec.where) in microbatches(config),
        table.PARAMETER: lambda: spec.where in parameters(config),
        table.GRADIENT: lambda: is_named(spec.where, parameters(config), config),
        table.MODULE: lambda: is_named(spec.where, modules(config), config),
        table.VARIABLE: lambda: spec.where.index("=") > 0,
        table.VERSION: lambda: bool(spec.where.strip()),
    }
    try:
        fits = checks[fault.argument]()
    except ValueError:
        fits = False
    if not fits:
        raise UserError(
            f"fault {spec}: {spec.where!r} is not what this run has there ({fault.argument})"
        )


def check_options(spec: Spec, config: Config, options: Namespace) -> None:
    """Raise :class:`UserError` when the run's other options leave no room for the fault."""
    in_loader = spec.name in LOADER_FAULTS or spec.where == "data"
    if in_loader and config.workers:
        raise UserError(f"fault {spec}: it is in the rank's own loading; use --workers 0")
    if spec.name in IN_BLOCKS and config.compile != "off":
        raise UserError(f"fault {spec}: it is inside a block; leave out --compile")
    if spec.name == "data-exhausted" and config.uneven == "join":
        raise UserError(f"fault {spec}: with --uneven join it would be none; leave that out")
    if spec.name == "cast-overflow" and getattr(options, "reduce_dtype", "fp16") != "fp16":
        raise UserError(f"fault {spec}: it takes --reduce-dtype fp16")
    if spec.name in IN_SAVES and (
        config.checkpoint_dir is None
        or not config.checkpoint_every
        or spec.step % config.checkpoint_every
    ):
        raise UserError(
            f"fault {spec}: it is in the save of step {spec.step}; use --checkpoint-dir DIR and "
            f"--checkpoint-every {spec.step}"
        )
    if spec.name == "bit-flip" and getattr(options, "replicas", 2) < 2:
        raise UserError(f"fault {spec}: without --replicas 2 there are no replicas to differ")


def named(where: str) -> tuple[str, int]:
    """``name/microbatch``, or ``name`` alone for the first microbatch."""
    name, slash, number = where.rpartition("/")
    return (name, int(number)) if slash else (where, 1)


def is_named(where: str, names: set[str], config: Config) -> bool:
    name, microbatch = named(where)
    return name in names and microbatch in microbatches(config)


def microbatches(config: Config) -> range:
    return range(1, config.accumulate + 1)


def parameters(config: Config) -> set[str]:
    return {name for name, _ in skeleton(config).named_parameters()}


def modules(config: Config) -> set[str]:
    return {name for name, _ in skeleton(config).named_modules() if name}


def skeleton(config: Config) -> Transformer:
    """The run's model without values."""
    with torch.device("meta"):
        return Transformer(Shape(config.seq_len, config.layers, config.dim, config.heads))
