"""Which tensors hold something that is not finite."""

import math

import pytest
import torch

from rankscope.agent.probes.numerics import finite
from rankscope.agent.probes.numerics.finite import Trouble


def with_one(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    tensor = torch.ones(3, 5, dtype=dtype)
    tensor[1, 2] = value
    return tensor


@pytest.mark.parametrize(
    ("value", "word"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_one_element_is_found_whatever_its_type(
    value: float, word: str, dtype: torch.dtype
) -> None:
    """A single element among healthy tensors is found, named by its kind, and counted."""
    tensors = [torch.ones(4), with_one(value, dtype), torch.ones(2, dtype=torch.float64)]
    assert list(finite.troubles(tensors)) == [(1, Trouble(word, 1))]


def test_the_worst_is_named() -> None:
    """Of NaN and Inf in one tensor NaN is told, and both are counted."""
    tensor = with_one(math.inf)
    tensor[0, 0] = math.nan
    assert finite.trouble(tensor) == Trouble("nan", 2)


def test_a_norm_that_overflows_by_itself_accuses_nobody() -> None:
    """Large finite numbers, whose squares are beyond float32, are finite."""
    large = torch.full((8,), 3e38)
    assert finite.suspects([large]) == [0]
    assert list(finite.troubles([large])) == []


def test_odd_tensors_are_left_alone_or_looked_at() -> None:
    """Integers, nothing, sparse and meta tensors hold nothing bad; complex and float8 ones may."""
    freed = torch.full((4,), math.nan)
    freed.untyped_storage().resize_(0)
    healthy = [
        torch.arange(3),
        torch.zeros(0),
        torch.ones(2, 2).to_sparse(),
        torch.ones(2, device="meta"),
        torch.ones(3, dtype=torch.bool),
        torch.ones(4).to(torch.float8_e4m3fn),
        freed,
    ]
    assert list(finite.troubles(healthy)) == []
    bad = torch.tensor([complex(1, math.nan)])
    assert list(finite.troubles([bad, with_one(math.nan).to(torch.float8_e4m3fn)])) == [
        (0, Trouble("nan", 1)),
        (1, Trouble("nan", 1)),
    ]


def test_looking_records_no_graph() -> None:
    """What requires a gradient is looked at without becoming part of anything."""
    tensor = with_one(math.nan).requires_grad_()
    assert finite.trouble(tensor) == Trouble("nan", 1)
    assert tensor.grad_fn is None
