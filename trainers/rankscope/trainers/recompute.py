"""Activation checkpointing: what backward needs of a block is computed again instead of kept."""

from collections.abc import Iterable
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

EVERY = {"none": 0, "full": 1, "selective": 2}
"""``--recompute``: of every how many blocks one is recomputed; 0 for none."""


def recompute(blocks: Iterable[nn.Module], how: str) -> None:
    """Let the ``full`` number of ``blocks`` keep their input alone, or every other one.

    Only ``forward`` is replaced: names in the state dict stay, and so does the place of hooks on a
    block, such as those with which FSDP2 gathers its parameters. Non-reentrant, so that backward
    is one backward, whose gradients are the same to the bit.
    """
    for index, block in enumerate(blocks):
        if EVERY[how] and index % EVERY[how] == 0:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
