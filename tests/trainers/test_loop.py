"""The step loop on data made for the purpose, in this process."""

from argparse import Namespace

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

from rankscope.trainers.config import Config
from rankscope.trainers.data import IGNORED, Batch, Data
from rankscope.trainers.ddp import TRAINER
from rankscope.trainers.launch import Place
from rankscope.trainers.loop import train
from rankscope.trainers.report import Report

CONFIG = Config(
    steps=2, batch_size=2, seq_len=8, layers=1, dim=16, heads=2, attach="none", accumulate=2
)
CPU = torch.device("cpu")


def batch(seed: int, valid: int) -> Batch:
    """Two sequences, ``valid`` of whose 16 tokens have a target."""
    tokens = torch.randint(1, 256, (2, 9), generator=torch.Generator().manual_seed(seed))
    targets = tokens[:, 1:].clone()
    targets.view(-1)[valid:] = IGNORED
    return tokens[:, :-1], targets


def trained(batches: list[Batch]) -> list[torch.Tensor]:
    """The parameters after ``CONFIG.steps`` updates on ``batches``, epoch after epoch."""
    parallel = TRAINER.parallelise(CONFIG, Namespace(), Place(), CPU)
    optimizer = torch.optim.SGD(parallel.model.parameters(), lr=0.1)
    sampler: DistributedSampler[Batch] = DistributedSampler(
        batches,  # type: ignore[arg-type]
        num_replicas=1,
        rank=0,
        shuffle=False,
    )
    loader: DataLoader[Batch] = DataLoader(batches, batch_size=None, sampler=sampler)  # type: ignore[arg-type]
    data = Data(sampler, loader, None)
    train(CONFIG, parallel, optimizer, data, CPU, Report(CONFIG, 0, None), "test")
    return [parameter.detach() for parameter in parallel.model.parameters()]


def test_an_update_without_a_valid_token_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    """It changes nothing, counts as no step, and is said."""
    none = [batch(1, 0), batch(2, 0)]
    good = [batch(3, 16), batch(4, 16), batch(5, 16), batch(6, 16)]
    with_it = trained([*good[:2], *none, *good[2:]])
    assert "no rank had a valid token for step 2" in capsys.readouterr().out
    for one, other in zip(with_it, trained(good), strict=True):
        assert torch.equal(one, other)


def test_the_last_shorter_window_is_normalised_by_its_true_size() -> None:
    """Three microbatches in windows of two: the third is an update by itself."""
    first, second, third = batch(1, 16), batch(2, 16), batch(3, 5)
    # As two microbatches with the same valid tokens in all: the update must not differ.
    halves = [(third[0][:1], third[1][:1]), (third[0][1:], third[1][1:])]
    one = trained([first, second, third])
    other = trained([first, second, *halves])
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b)
