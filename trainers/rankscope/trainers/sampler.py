"""Which rank gets which sequence, where ranks may get unequally many."""

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler


class Dealt(Sampler[int]):
    """``length`` sequences in the order of a permutation, dealt out in turn, without a remainder.

    What ``DistributedSampler`` does, but that one makes ranks equal by dropping or repeating.
    """

    def __init__(self, length: int, ranks: int, rank: int, seed: int) -> None:
        self.length, self.ranks, self.rank, self.seed = length, ranks, rank, seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order: list[int] = torch.randperm(self.length, generator=generator).tolist()
        return iter(order[self.rank :: self.ranks])

    def __len__(self) -> int:
        return len(range(self.rank, self.length, self.ranks))
