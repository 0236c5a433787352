"""What a run is told to do, and every check that needs neither a process group nor the text.

A wrong setting raises :class:`~rankscope.protocol.exits.UserError`. It depends on nothing but the
command line and the environment, which are the same on every rank, so all ranks refuse alike.
"""

import argparse
import math
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from rankscope.protocol.exits import UserError


@dataclass(frozen=True)
class Config:
    """The settings both trainers share; the defaults train for real in seconds on two cores."""

    steps: int = 200
    """Updates of the parameters."""
    batch_size: int = 8
    """Sequences in one microbatch of one rank."""
    seq_len: int = 128
    """Tokens in one sequence; one token is one byte."""
    layers: int = 4
    dim: int = 128
    heads: int = 4
    accumulate: int = 1
    """Microbatches that make one update."""
    lr: float = 3e-3
    warmup: int = 10
    """Steps in which the learning rate rises to ``lr``."""
    clip: float = 1.0
    """Largest global norm of the gradient."""
    eval_every: int = 0
    """Steps between evaluations on held-out text; 0 for none."""
    workers: int = 0
    """Loader processes of each rank."""
    seed: int = 0
    text: Path | None = None
    """File or folder; None for the interpreter's own standard library."""
    text_bytes: int = 4_000_000
    """Most of the text that is read."""
    device: str = "auto"
    precision: str = "fp32"
    """What forward and backward compute in; parameters and optimizer state stay fp32."""
    recompute: str = "none"
    """Which blocks' activations are computed again in backward; see ``recompute``."""
    compile: str = "off"
    """``auto``, a backend of ``torch.compile``, or ``off``; see ``compiling``."""
    uneven: str = "drop"
    """What is done with data that does not divide by the ranks; see ``uneven``."""
    attach: str = "full"
    threads: int = 1
    """Compute threads of each rank on a CPU."""
    log_every: int = 10
    history: Path | None = None
    """Where rank 0 writes one JSON line a step: step, global loss, tokens, learning rate, norm."""
    checkpoint_dir: Path | None = None
    """Where checkpoints are saved; None for none."""
    checkpoint_every: int = 0
    """Steps between two of them; 0 for those an operator asks for, only."""
    checkpoint_keep: int = 0
    """The newest verified ones that are kept; 0 for all."""
    checkpoint_sync: bool = False
    """Whether training waits until one is written."""
    resume: str | None = None
    """``auto`` for the newest verified checkpoint, or the directory of one."""
    on_signal: list[str] = field(default_factory=list)
    """Signals, such as ``USR1``, at which the ranks save and stop."""
    fault: list[str] = field(default_factory=list)
    """What is to go wrong, each ``FAULT@rank:step[:where]``; see ``trainers.faults``."""
    fault_log: Path | None = None
    """Where a rank that goes wrong says so, as one JSON line, just before."""


class OneLineParser(argparse.ArgumentParser):
    """An argument parser that raises :class:`UserError` instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see --help")


def parser(module: str, what: str) -> OneLineParser:
    """The shared options, for the trainer that is started with ``-m module``."""
    made = OneLineParser(prog=module, description=what, allow_abbrev=False)
    d = Config()
    run = made.add_argument_group("run")
    run.add_argument("--steps", type=int, default=d.steps, help="updates (default %(default)s)")
    run.add_argument("--seed", type=int, default=d.seed, help="of model and data order")
    run.add_argument("--device", choices=("auto", "cpu", "cuda"), default=d.device)
    run.add_argument(
        "--precision",
        choices=("fp32", "bf16", "fp16"),
        default=d.precision,
        help="of the computation; fp16 comes with a gradient scaler",
    )
    run.add_argument(
        "--compile",
        nargs="?",
        const="auto",
        choices=("auto", "inductor", "aot_eager", "off"),
        default=d.compile,
        help="compile each block; auto is inductor where there is a C++ compiler, else aot_eager",
    )
    run.add_argument(
        "--recompute",
        choices=("none", "full", "selective"),
        default=d.recompute,
        help="activation checkpointing of all blocks, or of every other one",
    )
    run.add_argument("--threads", type=int, default=d.threads, help="of each rank, on a CPU")
    run.add_argument(
        "--attach",
        choices=("full", "plain", "none"),
        default=d.attach,
        help="full: with batches() and end_step(); plain: attach(model, optimizer) alone",
    )
    run.add_argument("--log-every", type=int, default=d.log_every, metavar="STEPS")
    run.add_argument("--history", type=Path, metavar="FILE", help="one JSON line a step")

    checkpoints = made.add_argument_group("checkpoints")
    checkpoints.add_argument(
        "--checkpoint-dir", type=Path, metavar="DIR", help="save checkpoints here"
    )
    checkpoints.add_argument(
        "--checkpoint-every",
        type=int,
        default=d.checkpoint_every,
        metavar="STEPS",
        help="without it only when an operator asks",
    )
    checkpoints.add_argument(
        "--checkpoint-keep",
        type=int,
        default=d.checkpoint_keep,
        metavar="N",
        help="keep the newest N verified ones (default: all); an operator's always stay",
    )
    checkpoints.add_argument(
        "--checkpoint-sync", action="store_true", help="wait for each to be written"
    )
    checkpoints.add_argument(
        "--resume",
        metavar="auto|PATH",
        help="go on from the newest verified checkpoint in --checkpoint-dir, or from this one",
    )

    checkpoints.add_argument(
        "--on-signal",
        action="append",
        default=[],
        metavar="SIGNAL",
        help="save and stop when a rank is sent this one, such as USR1; may be given several times",
    )

    faults = made.add_argument_group("faults")
    faults.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="FAULT@rank:step[:where]",
        help="let this go wrong, such as sigkill@1:20; may be given several times",
    )
    faults.add_argument(
        "--fault-log", type=Path, metavar="FILE", help="one JSON line for each fault that happened"
    )

    text = made.add_argument_group("text")
    text.add_argument("--text", type=Path, metavar="PATH", help="file or folder to train on")
    text.add_argument("--text-bytes", type=int, default=d.text_bytes, help="read at most so many")
    text.add_argument("--batch-size", type=int, default=d.batch_size, help="sequences a microbatch")
    text.add_argument("--seq-len", type=int, default=d.seq_len, help="bytes a sequence")
    text.add_argument("--workers", type=int, default=d.workers, help="loader processes a rank")
    text.add_argument(
        "--uneven",
        choices=("drop", "pad", "join"),
        default=d.uneven,
        help="data that does not divide: drop the rest, pad it with empty sequences, or let ranks "
        "that run out join the others with empty microbatches",
    )
    text.add_argument("--eval-every", type=int, default=d.eval_every, metavar="STEPS")

    model = made.add_argument_group("model")
    model.add_argument("--layers", type=int, default=d.layers)
    model.add_argument("--dim", type=int, default=d.dim)
    model.add_argument("--heads", type=int, default=d.heads)

    update = made.add_argument_group("update")
    update.add_argument("--accumulate", type=int, default=d.accumulate, help="microbatches")
    update.add_argument("--lr", type=float, default=d.lr)
    update.add_argument("--warmup", type=int, default=d.warmup, metavar="STEPS")
    update.add_argument("--clip", type=float, default=d.clip, help="largest gradient norm")
    return made


def from_arguments(arguments: argparse.Namespace) -> Config:
    """The shared settings among ``arguments``, checked.

    Raises :class:`UserError` for a setting that cannot work.
    """
    config = Config(**{name: getattr(arguments, name) for name in Config.__dataclass_fields__})
    check(config)
    return config


def signals(config: Config) -> list[signal.Signals]:
    """Those of ``--on-signal``. Raises :class:`UserError` for one that there is not, or that no
    process can answer to."""
    found: list[signal.Signals] = []
    for name in config.on_signal:
        known = signal.Signals.__members__.get(f"SIG{name.upper().removeprefix('SIG')}")
        if known is None:
            raise UserError(f"--on-signal {name}: there is no such signal; write it as USR1")
        if known in (signal.SIGKILL, signal.SIGSTOP):
            raise UserError(f"--on-signal {name}: no process can answer to that one; use USR1")
        found.append(known)
    return found


def check(config: Config) -> None:
    """Raise :class:`UserError` for a setting that cannot work, whatever the text and the ranks."""
    at_least(config, 1, ("steps", "batch_size", "seq_len", "layers", "dim", "heads"))
    at_least(config, 1, ("accumulate", "threads", "text_bytes", "log_every"))
    at_least(config, 0, ("warmup", "workers", "eval_every", "seed"))
    at_least(config, 0, ("checkpoint_every", "checkpoint_keep"))
    if config.checkpoint_dir is None:
        for name in ("checkpoint_every", "checkpoint_keep", "checkpoint_sync"):
            if getattr(config, name):
                raise UserError(f"{option(name)} takes a --checkpoint-dir")
        if config.resume == "auto":
            raise UserError("--resume auto takes a --checkpoint-dir to look in")
    if config.on_signal:
        signals(config)
        if config.attach != "full":
            raise UserError("--on-signal takes --attach full: the loop has to look for it")
        if config.checkpoint_dir is None:
            raise UserError("--on-signal takes a --checkpoint-dir to save to")
    for name in ("lr", "clip"):
        value = getattr(config, name)
        if not (value > 0 and math.isfinite(value)):
            raise UserError(f"{option(name)} is {value}; it must be a positive number")
    if config.dim % config.heads:
        raise UserError(
            f"--dim {config.dim} does not divide into --heads {config.heads}; "
            f"use a multiple, such as --dim {math.ceil(config.dim / config.heads) * config.heads}"
        )
    if config.fault_log is not None and not os.access(config.fault_log.parent, os.W_OK):
        raise UserError(f"--fault-log {config.fault_log}: cannot write there; name another folder")
    if config.history is not None and not os.access(config.history.parent, os.W_OK):
        raise UserError(f"--history {config.history}: cannot write there; name another folder")


def at_least(config: Config, least: int, names: Sequence[str]) -> None:
    """Raise :class:`UserError` if one of the settings ``names`` is smaller than ``least``."""
    for name in names:
        value = getattr(config, name)
        if value < least:
            raise UserError(f"{option(name)} is {value}; it must be at least {least}")


def option(name: str) -> str:
    """How the setting ``name`` is written on the command line."""
    return "--" + name.replace("_", "-")
