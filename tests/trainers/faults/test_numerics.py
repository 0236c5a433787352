"""Faults in values: what each of them touches, and what it leaves as it was."""

import math
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.processes

PARAMETER = "blocks.1.mlp.up.weight"
NAMED = "blocks.0.attention.qkv.weight"
EVERY = pytest.mark.parametrize("trainer", ["ddp", "fsdp2"])


def finite(numbers: list[str]) -> bool:
    return all(math.isfinite(float(number)) for number in numbers)


def ended_well(run: Any) -> bool:
    return [rank["code"] for rank in run.ranks] == [0, 0] and len(run.truth) >= 1


@EVERY
def test_nan_input(hurt: Callable[..., Any], trainer: str) -> None:
    """One batch of one rank has a NaN while the parameters are finite."""
    run = hurt(trainer, "nan-input@1:3")
    assert ended_well(run)
    assert run.steps(1, "bad_in") == [0, 0, 1, 0, 0]
    assert run.steps(0, "bad_in") == [0, 0, 0, 0, 0]
    assert run.steps(1, "bad_parameters")[2] == []
    assert finite(run.steps(0, "losses")[2])
    assert not finite(run.steps(1, "losses")[2])


@EVERY
def test_nan_module(hurt: Callable[..., Any], trainer: str) -> None:
    """The module's output is the first bad one, and its input was finite."""
    run = hurt(trainer, "nan-module@1:3:blocks.0.attention/2", "--accumulate", "2")
    assert ended_well(run)
    assert run.steps(1, "outputs")[2][0] == ["blocks.0.attention", 2, True]
    assert run.steps(0, "outputs")[2] == []
    assert run.truth[0]["where"] == {"module": "blocks.0.attention", "microbatch": 2}


@EVERY
def test_nan_loss(hurt: Callable[..., Any], trainer: str) -> None:
    """The loss of one step is NaN on one rank; gradients are finite, and so is all that follows."""
    run = hurt(trainer, "nan-loss@1:3")
    assert ended_well(run)
    assert run.ended == [3]
    assert [finite(losses) for losses in run.steps(1, "losses")] == [True, True, False, True, True]
    assert all(finite(losses) for losses in run.steps(0, "losses"))
    assert run.steps(1, "reduced_bad") == [[]] * 5


@EVERY
def test_nan_gradient(hurt: Callable[..., Any], trainer: str) -> None:
    """One parameter's gradient of one microbatch, before reduction, on that rank alone."""
    run = hurt(trainer, f"nan-gradient@1:3:{NAMED}/2", "--accumulate", "2")
    assert ended_well(run)
    bad = [[name, at] for name, at, top in run.steps(1, "gradients")[2] if not finite([top])]
    assert bad == [[NAMED, 2]]
    assert finite([top for _, _, top in run.steps(0, "gradients")[2]])
    assert NAMED in run.steps(0, "reduced_bad")[2]
    assert run.truth[0]["where"] == {"parameter": NAMED, "microbatch": 2}


@EVERY
def test_nan_parameter(hurt: Callable[..., Any], trainer: str) -> None:
    """One parameter of this rank's replica or shard is bad when the step begins."""
    run = hurt(trainer, "nan-parameter@1:3")
    assert ended_well(run)
    assert run.steps(1, "bad_parameters")[:3] == [[], [], [PARAMETER]]
    assert run.steps(0, "bad_parameters")[:3] == [[], [], []]


@EVERY
def test_nan_optimizer(hurt: Callable[..., Any], trainer: str) -> None:
    """One parameter's state is bad after the update, whose gradients were finite."""
    run = hurt(trainer, "nan-optimizer@1:3")
    assert ended_well(run)
    assert run.steps(1, "bad_state")[:3] == [[], [], [PARAMETER]]
    assert run.steps(0, "bad_state")[:3] == [[], [], []]
    assert run.steps(1, "reduced_bad")[2] == []


@EVERY
def test_cast_overflow(hurt: Callable[..., Any], trainer: str) -> None:
    """The gradient is finite, beyond fp16, and not finite any more when it has been reduced."""
    options = ("--reduce-dtype", "fp16") if trainer == "fsdp2" else ()
    run = hurt(trainer, "cast-overflow@1:3", *options)
    assert ended_well(run)
    largest = {name: float(top) for name, _, top in run.steps(1, "gradients")[2]}
    assert 65504 < largest[PARAMETER] < math.inf
    assert any(PARAMETER in run.steps(rank, "reduced_bad")[2] for rank in (0, 1))
    assert run.steps(1, "reduced_bad")[1] == []


@EVERY
def test_reduction_overflow(hurt: Callable[..., Any], trainer: str) -> None:
    """Finite on every rank, and their sum is not."""
    run = hurt(trainer, "reduction-overflow@1:3")
    assert ended_well(run)
    for rank in (0, 1):
        assert finite([top for _, _, top in run.steps(rank, "gradients")[2]])
    bad = {name for rank in (0, 1) for name in run.steps(rank, "reduced_bad")[2]}
    assert bad == {PARAMETER}
    assert run.truth[0]["ranks"] == []


@EVERY
def test_gradient_outlier(hurt: Callable[..., Any], trainer: str) -> None:
    """Thousands of times what the parameter's gradient was, and finite."""
    run = hurt(trainer, "gradient-outlier@1:3")
    assert ended_well(run)
    tops = [{name: float(top) for name, _, top in step} for step in run.steps(1, "gradients")]
    assert 1000 * tops[1][PARAMETER] < tops[2][PARAMETER] < math.inf


@EVERY
def test_sticky_nan(hurt: Callable[..., Any], trainer: str) -> None:
    """From its step on every reduced gradient has it, nothing is updated, and losses are finite."""
    run = hurt(trainer, "sticky-nan@1:3")
    assert ended_well(run)
    bad = [
        any(PARAMETER in run.steps(rank, "reduced_bad")[step] for rank in (0, 1))
        for step in range(5)
    ]
    assert bad == [False, False, True, True, True]
    for rank in (0, 1):
        assert len(set(run.steps(rank, "updated")[1:])) == 1
        assert all(finite(losses) for losses in run.steps(rank, "losses"))
