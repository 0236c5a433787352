"""Faults in what should be the same on all ranks, or should not be; and in memory."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

pytestmark = pytest.mark.processes

MIB = 1024  # resident sizes are in KiB


def test_a_healthy_run_has_equal_replicas_and_different_data_and_seeds(
    hurt: Callable[..., Any],
) -> None:
    """What the faults below are compared with."""
    run = hurt("ddp", "")
    assert [rank["code"] for rank in run.ranks] == [0, 0]
    assert run.steps(0, "updated") == run.steps(1, "updated")
    assert set(run.steps(0, "batch")).isdisjoint(run.steps(1, "batch"))
    assert set(run.steps(0, "seed")).isdisjoint(run.steps(1, "seed"))
    assert run.truth == []


@pytest.mark.parametrize(("trainer", "options"), [("ddp", ()), ("fsdp2", ("--replicas", "2"))])
def test_a_flipped_bit_makes_replicas_drift_apart(
    hurt: Callable[..., Any], trainer: str, options: tuple[str, ...]
) -> None:
    """They are equal up to the step, and never again; nothing is NaN."""
    run = hurt(trainer, "bit-flip@1:3", *options)
    same = [a == b for a, b in zip(*(run.steps(r, "parameters") for r in (0, 1)), strict=True)]
    assert same == [True, True, False, False, False]
    assert run.steps(1, "bad_parameters") == [[]] * 5


@pytest.mark.parametrize("trainer", ["ddp", "fsdp2"])
def test_one_rank_steps_alone(hurt: Callable[..., Any], trainer: str) -> None:
    """In that step the other's parameters stay, and the other is the one to be named."""
    run = hurt(trainer, "lone-step@1:3")
    updated = [run.steps(rank, "updated") for rank in (0, 1)]
    kept = [[now == before for before, now in pairwise(one)] for one in updated]
    assert kept == [[False, True, False, False], [False] * 4]
    assert run.truth[0]["ranks"] == [0]


def test_two_ranks_have_the_same_data(hurt: Callable[..., Any]) -> None:
    """Every batch is the other rank's; both are to be named."""
    run = hurt("ddp", "same-data@1:1")
    assert run.steps(0, "batch") == run.steps(1, "batch")
    assert run.truth[0]["ranks"] == [0, 1]


def test_two_ranks_have_the_same_seed(hurt: Callable[..., Any]) -> None:
    """That of torch's generator."""
    run = hurt("ddp", "same-seed@1:1")
    assert run.steps(0, "seed") == run.steps(1, "seed")


def test_one_rank_is_set_up_differently(hurt: Callable[..., Any]) -> None:
    """An environment variable, or the version torch gives."""
    run = hurt("ddp", "environment@1:1:NCCL_PROTO=LL")
    assert set(run.steps(1, "environment")) - set(run.steps(0, "environment")) == {"LL"}
    run = hurt("ddp", "library-version@1:1:2.0.0")
    assert set(run.steps(1, "torch")) == {"2.0.0"}
    assert set(run.steps(0, "torch")) != {"2.0.0"}


def test_memory_grows_every_step(hurt: Callable[..., Any]) -> None:
    """By four megabytes from the step on."""
    run = hurt("ddp", "memory-growth@1:3")
    resident = run.steps(1, "resident_kb")
    assert resident[4] - resident[2] >= 7 * MIB


def test_memory_nears_a_limit(hurt: Callable[..., Any]) -> None:
    """There is a limit from the step on, and the rank grows towards it and ends well."""
    run = hurt("ddp", "memory-limit@1:3")
    resident = run.steps(1, "resident_kb")
    assert resident[4] - resident[2] >= 30 * MIB
    limits = [max(0, limit) for limit in run.steps(1, "limit_bytes")]
    assert limits[:2] != limits[2:4]
    assert run.ranks[1]["code"] == 0
