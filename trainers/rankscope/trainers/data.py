"""From text to microbatches: windows of bytes, dealt out to the ranks without overlap."""

import math
import zlib
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from rankscope.protocol.exits import UserError
from rankscope.trainers.config import Config
from rankscope.trainers.sampler import Dealt
from rankscope.trainers.text import SEPARATOR

IGNORED = -100
"""The target of a token that has no successor to predict; the default of torch's cross entropy."""

HELD_OUT_SHARE = 0.05
MAX_HELD_OUT_BYTES = 65_536
"""How much of the text is kept for evaluation, where there is one."""

Batch = tuple[Tensor, Tensor]
"""Inputs and targets, int64 of shape (batch_size, seq_len)."""


class ByteWindows(Dataset[Batch]):
    """Consecutive windows of ``seq_len`` bytes, each with the byte that follows every one of them.

    Where the input is :data:`SEPARATOR` the target is :data:`IGNORED`, for nothing in a document
    tells how the next one begins. The last window is filled up with separators, so no byte of the
    text is left out, and windows up to ``multiple`` of a count are nothing but separators, as is
    the one after the last: a rank that gets one has no valid token in it and yet takes part in
    every collective.
    """

    def __init__(self, text: bytes, seq_len: int, multiple: int = 1) -> None:
        self.seq_len = seq_len
        windows = math.ceil(math.ceil(max(len(text) - 1, 0) / seq_len) / multiple) * multiple
        padded = text.ljust((windows + 1) * seq_len + 1, bytes([SEPARATOR]))
        self.tokens = torch.frombuffer(bytearray(padded), dtype=torch.uint8)
        self.windows = windows

    def __len__(self) -> int:
        return self.windows

    def __getitem__(self, index: int) -> Batch:
        start = index * self.seq_len
        window = self.tokens[start : start + self.seq_len + 1].long()
        inputs, targets = window[:-1], window[1:].clone()
        targets[inputs == SEPARATOR] = IGNORED
        return inputs, targets


@dataclass(frozen=True)
class Data:
    """What one rank trains and is evaluated on."""

    sampler: "DistributedSampler[Batch] | Dealt"
    loader: "DataLoader[Batch]"
    held_out: "DataLoader[Batch] | None"
    order: str = ""
    """What fixes which sequences there are and their order, in words."""

    def epoch(self, epoch: int, start: int = 0) -> "DataLoader[Batch]":
        """The loader, in the order of epoch ``epoch``; without this every epoch is the same.

        It leaves out the ``start`` sequences that all ranks together have seen of it before.
        """
        self.sampler.set_epoch(epoch)
        if isinstance(self.sampler, Dealt):
            self.sampler.start = start
        return self.loader


def split(config: Config, text: bytes) -> tuple[bytes, bytes]:
    """Text to train on and, when there are evaluations, text held out for them."""
    if config.eval_every == 0:
        return text, b""
    cut = len(text) - min(int(len(text) * HELD_OUT_SHARE), MAX_HELD_OUT_BYTES)
    return text[:cut], text[cut:]


def check_text(config: Config, text: bytes, ranks: int) -> None:
    """Raise :class:`UserError` unless ``ranks`` ranks can make one full update of ``text``.

    With ``--uneven drop`` the update has no empty token, else it has one that is not empty in its
    last microbatch.
    """
    training, held_out = split(config, text)
    has = max(len(training) - 1, 0)
    microbatch = ranks * config.batch_size * config.seq_len
    needs = microbatch * config.accumulate
    if config.uneven != "drop":
        needs += 1 - microbatch
    if has < needs:
        raise UserError(
            f"the text has {has} tokens and one batch needs {needs} (ranks × microbatches × "
            f"sequences × tokens: {ranks} × {config.accumulate} × {config.batch_size} × "
            f"{config.seq_len}{', the last of them begun' if config.uneven != 'drop' else ''}); "
            "name a larger --text, or lower --batch-size, --seq-len or --accumulate"
        )
    if config.eval_every and len(held_out) < 2:
        raise UserError("the text is too short to hold some out; leave out --eval-every")


def build(config: Config, text: bytes, rank: int, ranks: int, pin_memory: bool) -> Data:
    """The part of ``text`` that data-parallel rank ``rank`` of ``ranks`` sees.

    Every epoch is a new permutation, the same on all ranks, dealt out in turn: microbatch i of all
    ranks together is its i-th slice of ``ranks × batch_size`` windows. So R ranks of batch size B
    train on the same global batches as one rank of batch size R·B. What does not fill a microbatch
    on every rank is treated as ``config.uneven`` says (:mod:`rankscope.trainers.uneven`).
    """
    training, held_out = split(config, text)
    windows = ByteWindows(training, config.seq_len)
    sampler = Dealt(len(windows), ranks, rank, config.seed, config.uneven, config.batch_size)
    loader = DataLoader(
        windows,
        batch_size=config.batch_size,
        sampler=sampler,
        drop_last=config.uneven != "join",
        num_workers=config.workers,
        persistent_workers=config.workers > 0,
        pin_memory=pin_memory,
        # Own randomness, so that making an iterator does not advance the global generator.
        generator=torch.Generator().manual_seed(config.seed),
    )
    order = order_of(config, training)
    if not held_out:
        return Data(sampler, loader, None, order)
    # Padded with empty windows, so that every rank evaluates equally often, and none twice.
    evaluated = ByteWindows(held_out, config.seq_len, multiple=ranks * config.batch_size)
    in_turn: DistributedSampler[Batch] = DistributedSampler(
        evaluated, num_replicas=ranks, rank=rank, shuffle=False
    )
    return Data(
        sampler,
        loader,
        DataLoader(evaluated, batch_size=config.batch_size, sampler=in_turn, pin_memory=pin_memory),
        order,
    )


def order_of(config: Config, text: bytes) -> str:
    """What fixes the order of the sequences of ``text``, in words: for any number of ranks."""
    digest = f"{len(text)} bytes of text with CRC-32 {zlib.crc32(text):08x}"
    return f"--seed {config.seed}, --seq-len {config.seq_len}, {digest}"
