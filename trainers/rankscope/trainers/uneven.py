"""Data that does not divide by the ranks: what is done with the rest, so that nobody waits for it.

``drop``
    What does not fill a microbatch on every rank is left for another epoch's order.
``pad``
    Empty sequences, without a valid token, fill the last microbatches.
``join``
    Ranks have unequally many sequences. One that has run out joins the others' updates with empty
    microbatches, until all have run out.

In all three no sequence counts twice, and the objective, which divides by the tokens that are
there, stays what it is.
"""

from collections.abc import Iterator

import torch

from rankscope.trainers.config import Config
from rankscope.trainers.data import IGNORED, Batch
from rankscope.trainers.launch import Ranks


def empty(config: Config) -> Batch:
    """A microbatch without a valid token."""
    shape = (config.batch_size, config.seq_len)
    return torch.zeros(shape, dtype=torch.long), torch.full(shape, IGNORED)


def joined(windows: Iterator[list[Batch]], ranks: Ranks, filler: Batch) -> Iterator[list[Batch]]:
    """``windows``, each filled up to the length of the longest one on any rank.

    It ends on all ranks together: when none of them has a window left. An all-reduce a window.
    """
    while True:
        window = next(windows, [])
        longest = int(ranks.most(torch.tensor(len(window))))
        if longest == 0:
            return
        yield window + [filler] * (longest - len(window))
