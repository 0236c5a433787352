"""A trainer from its command line to its exit code."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch.optim import AdamW

from rankscope.protocol.exits import Exit, UserError
from rankscope.trainers import compiling, data
from rankscope.trainers import config as settings
from rankscope.trainers.config import Config
from rankscope.trainers.launch import (
    Place,
    check_same_text,
    choose_device,
    everyone,
    process_group,
    refuse,
)
from rankscope.trainers.loop import train
from rankscope.trainers.parallel import Trainer
from rankscope.trainers.precision import check_precision
from rankscope.trainers.report import reporting
from rankscope.trainers.text import read_text


def main(trainer: Trainer, arguments: Sequence[str] | None = None) -> int:
    """Run ``trainer`` with ``arguments`` (default: the command line); returns the exit code.

    Everything that can be refused is refused before there is a process group, by every rank alike.
    """
    place = Place.from_environment()
    try:
        parser = settings.parser(trainer.module, trainer.what)
        trainer.add_options(parser)
        options = parser.parse_args(arguments)
        config = settings.from_arguments(options)
        trainer.check(config, options, place)
        if config.fault:
            from rankscope.trainers.faults import specs

            specs.check(config, options, place)
        device = choose_device(config.device, place)
        text = read_text(config.text, config.text_bytes)
        check_precision(config.precision, device)
        data.check_text(config, text, place.world_size)
    except UserError as error:
        return refuse(trainer.module, error, place)
    try:
        with process_group(place, device, trainer.group_when_alone):
            check_same_text(text)
            run(trainer, config, options, place, device, text)
    except UserError as error:  # raised on all ranks, after they compared notes
        return refuse(trainer.module, error, place)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    return int(Exit.FINE)


def run(
    trainer: Trainer,
    config: Config,
    options: Namespace,
    place: Place,
    device: torch.device,
    text: bytes,
) -> None:
    """Build model, optimizer and data on this rank, and train."""
    if device.type == "cpu":
        torch.set_num_threads(config.threads)
    backend, compiled = compiling.choose(config.compile, device, everyone(place))
    config = replace(config, compile=backend)
    parallel = trainer.parallelise(config, options, place, device)
    ranks = parallel.ranks
    # The model is the same on every rank by now; whatever is drawn from here on is each rank's own.
    torch.manual_seed(config.seed + 1 + ranks.rank)
    optimizer = AdamW(parallel.model.parameters(), lr=config.lr, betas=(0.9, 0.95))
    feed = data.build(config, text, ranks.rank, ranks.size, pin_memory=device.type == "cuda")
    with reporting(config, place.rank) as report:
        parameters = sum(p.numel() for p in parallel.model.parameters())
        report.say(
            f"{trainer.what} on {ranks.size} × {device.type}: {parameters:,} parameters, "
            f"{len(text):,} bytes of text"
        )
        if compiled:
            report.say(compiled)
        if not config.fault:
            train(config, parallel, optimizer, feed, device, report, run_name(config))
            return
        from rankscope.trainers.faults.inject import inject  # not even loaded without a fault

        with inject(config, place, trainer.what, parallel, optimizer, feed) as hurt:
            name = run_name(config)
            train(
                config,
                hurt.parallel,
                optimizer,
                hurt.data,
                device,
                report,
                name,
                hurt.windows,
                hurt.in_save,
            )


def run_name(config: Config) -> str:
    return f"gpt-{config.text.stem}" if config.text is not None else "gpt-stdlib"


def start(trainer: Trainer) -> None:
    """What ``python -m`` does with a trainer."""
    sys.exit(main(trainer))
