"""The step loop on data made for the purpose, in this process and on two ranks."""

import importlib.util
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from rankscope.trainers.data import Batch
from rankscope.trainers.ddp import TRAINER
from rankscope.trainers.launch import Place, Ranks
from rankscope.trainers.uneven import joined

SCRIPT = Path(__file__).parent / "ranks" / "loop.py"
CPU = torch.device("cpu")


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("loop_of_ranks", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LOOP = script()


def trained(batches: list[Batch], **settings: Any) -> list[torch.Tensor]:
    """The parameters of one process after a few updates on ``batches``, epoch after epoch."""
    config = replace(LOOP.CONFIG, **settings)
    parallel = TRAINER.parallelise(config, Namespace(), Place(), CPU)
    parameters: list[torch.Tensor] = LOOP.trained(parallel, batches, config)
    return parameters


def test_an_update_without_a_valid_token_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    """It changes nothing, counts as no step, and is said."""
    good, none = LOOP.GOOD, LOOP.NONE
    with_it = trained([*good[:2], *none, *good[2:]])
    assert "no rank had a valid token for step 2" in capsys.readouterr().out
    for one, other in zip(with_it, trained(good), strict=True):
        assert torch.equal(one, other)


def test_the_last_shorter_window_is_normalised_by_its_true_size() -> None:
    """Three microbatches in windows of two: the third is an update by itself."""
    first, second, third = (LOOP.batch(seed, valid) for seed, valid in ((1, 16), (2, 16), (3, 5)))
    # As two microbatches with the same valid tokens in all: the update must not differ.
    halves = [(third[0][:1], third[1][:1]), (third[0][1:], third[1][1:])]
    one = trained([first, second, third], steps=2)
    other = trained([first, second, *halves], steps=2)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b)


def test_joining_alone_changes_nothing() -> None:
    """One rank is always the one with the most."""
    windows = [[LOOP.batch(1, 16)] * 2, [LOOP.batch(2, 16)]]
    ranks = Ranks(0, 1, None)
    assert list(joined(iter(windows), ranks, LOOP.batch(0, 0))) == windows


@pytest.fixture(scope="module")
def results(
    launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, dict[str, Any]]]:
    """What two ranks said and found."""
    folder = tmp_path_factory.mktemp("loop")
    ended = launch(str(SCRIPT), str(folder), ranks=2)
    assert (ended.code, ended.stderr) == (0, ""), ended
    return ended.stdout, torch.load(folder / "results.pt", weights_only=True)


@pytest.mark.processes
def test_ranks_reject_an_update_together_and_say_so_once(results: Any) -> None:
    """No rank has a valid token: all of them go on as if that update had not been."""
    stdout, found = results
    assert stdout.count("no rank had a valid token for step 2: update rejected on all ranks") == 2
    for trainer in ("ddp", "fsdp2"):
        assert found[trainer]["rejected"] == [True, True]


@pytest.mark.processes
@pytest.mark.parametrize("trainer", ["ddp", "fsdp2"])
def test_two_ranks_have_the_loss_of_all_their_tokens(results: Any, trainer: str) -> None:
    """2 and 6 tokens with means of 3 and 1: 1.5, where the mean of the means is 2."""
    assert results[1][trainer]["example"] == [1.5, 1.5]


@pytest.mark.processes
@pytest.mark.parametrize("trainer", ["ddp", "fsdp2"])
def test_a_rank_that_has_run_out_joins_the_others(results: Any, trainer: str) -> None:
    """Five and two microbatches, two an update: the second and third update are of one rank."""
    one, other = LOOP.UNEVEN
    alone = trained([*one[:2], *other, *one[2:4], *[LOOP.batch(0, 0)] * 2, one[4]], accumulate=4)
    for a, b in zip(results[1][trainer]["joined"], alone, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
