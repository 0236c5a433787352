"""Which rank gets which sequence, from wherever in an epoch."""

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler


class Dealt(Sampler[int]):
    """``length`` sequences in the order of a permutation, dealt out in turn.

    ``rest`` says what is done with those that do not divide: ``drop`` leaves out what does not go
    round, ``pad`` fills up with the index ``length``, which stands for an empty sequence, until
    every rank has full batches of ``batch_size``, and ``join`` lets ranks have unequally many.

    Dealing begins after the first ``start`` sequences of the permutation, which is the same for
    every number of ranks: an epoch can be gone on with by more or fewer of them, and no sequence is
    left out or comes twice.
    """

    def __init__(
        self,
        length: int,
        ranks: int,
        rank: int,
        seed: int,
        rest: str = "join",
        batch_size: int = 1,
    ) -> None:
        self.length, self.ranks, self.rank, self.seed = length, ranks, rank, seed
        self.rest, self.batch_size = rest, batch_size
        self.epoch = 0
        self.start = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order: list[int] = torch.randperm(self.length, generator=generator).tolist()
        order = order[self.start :]
        if self.rest == "pad":
            order += [self.length] * (-len(order) % (self.ranks * self.batch_size))
        elif self.rest == "drop":
            order = order[: len(order) // self.ranks * self.ranks]
        return iter(order[self.rank :: self.ranks])

    def __len__(self) -> int:
        left = max(0, self.length - self.start)
        if self.rest == "pad":
            each = self.ranks * self.batch_size
            return -(-left // each) * self.batch_size
        if self.rest == "drop":
            return left // self.ranks
        return len(range(self.rank, left, self.ranks))
