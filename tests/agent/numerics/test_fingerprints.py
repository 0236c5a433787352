"""The tensors of a batch, and the fingerprint that equal data share."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.agent.probes.numerics import batch
from support.observed import observed


def of(*tensors: torch.Tensor) -> int:
    samples = [batch.sample(tensor) for tensor in tensors]
    return batch.fingerprint([sample for sample in samples if sample is not None])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=0, max_size=3), st.integers(0, 1 << 30))
def test_equal_data_has_equal_fingerprints(shape: list[int], seed: int) -> None:
    """A copy of a batch has its fingerprint, also one that lies in memory in another way."""
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    twin = torch.empty_strided(tensor.shape, tuple(reversed(tensor.shape)))
    turned = tensor.clone().transpose(0, -1).contiguous().transpose(0, -1) if shape else tensor
    assert twin.shape == tensor.shape
    assert of(tensor) == of(tensor.clone()) == of(turned)
    assert 0 <= of(tensor) < 1 << 63


def test_other_data_has_another_one() -> None:
    """Other numbers, another type, another shape or another order is another batch."""
    tensor = torch.arange(12)
    others = [
        of(tensor + 1),
        of(tensor.to(torch.int32)),
        of(tensor.view(3, 4)),
        of(tensor.flip(0)),
        of(tensor, tensor),
    ]
    assert len({of(tensor), *others}) == 6


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.bool, torch.uint8, torch.int64, torch.uint64),
        *(torch.float16, torch.bfloat16, torch.float64, torch.complex64),
    ],
)
def test_elements_of_any_type_count(dtype: torch.dtype) -> None:
    """One that differs makes another fingerprint, whatever numbers the batch is of."""
    tensor = torch.zeros(9, dtype=dtype)
    other = tensor.clone()
    other[4] = 1
    assert of(tensor) == of(tensor.clone()) != of(other)


def test_very_large_and_odd_numbers_have_a_fingerprint() -> None:
    """More than 63 bits, not a number, infinite: of each its own."""
    odd = [torch.tensor([(1 << 64) - 1], dtype=torch.uint64)]
    odd += [torch.tensor([(1 << 64) - 2], dtype=torch.uint64)]
    odd += [torch.tensor([value]) for value in (math.nan, math.inf, -math.inf, 0.0, -0.0)]
    assert len({of(tensor) for tensor in odd}) == len(odd)
    assert all(of(tensor) == of(tensor.clone()) for tensor in odd)


def test_a_large_batch_is_read_in_few_places_of_all_its_rows() -> None:
    """Every row of a batch of tokens counts, and little is read of it."""
    tokens = torch.zeros(32, 1024, dtype=torch.long)
    sample = batch.sample(tokens)
    assert sample is not None
    assert len(sample.elements) <= batch.SAMPLED
    for row in range(32):
        other = tokens.clone()
        other[row] = 7
        assert of(other) != of(tokens)


def test_odd_tensors() -> None:
    """Whatever a batch is made of, it has a fingerprint or none; nothing raises."""
    tensors = [
        torch.tensor(3.0),
        torch.zeros(0, 4),
        torch.ones(5, dtype=torch.bool),
        torch.randn(4, dtype=torch.complex64).conj(),
        torch.randn(4, dtype=torch.bfloat16),
        torch.tensor([math.nan, math.inf]),
        torch.randn(4, requires_grad=True),
    ]
    assert len({of(tensor) for tensor in tensors}) == len(tensors)
    assert of(torch.tensor([math.nan])) == of(torch.tensor([math.nan]))
    assert batch.sample(torch.ones(2, device="meta")) is None
    assert batch.sample(torch.ones(2, 2).to_sparse()) is None


def test_tensors_are_found_where_they_are() -> None:
    """In positions, keywords, lists and dictionaries, with a place to look for them."""
    one, two, three = torch.ones(1), torch.ones(2), torch.ones(3)
    found = batch.tensors((one, [{"ids": two}]), {"mask": (None, three)})
    assert [place for place, _ in found] == ["args[0]", "args[1][0]['ids']", "kwargs['mask'][1]"]
    assert batch.tensors((), {}) == []
    many = batch.tensors(([torch.ones(1)] * 100,))
    assert len(many) == batch.MAX_TENSORS


def test_a_step_has_the_fingerprint_of_all_its_microbatches() -> None:
    """Ranks with the same two microbatches agree, and with them in another order do not."""

    def train(*batches: torch.Tensor) -> int | None:
        model = torch.nn.Embedding(8, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with observed((model, optimizer)) as seen:
            for one in batches:
                model(one).sum().backward()
            optimizer.step()
            with torch.no_grad():
                model(torch.ones(9, dtype=torch.long))  # an evaluation is no part of it
            (record,) = seen.steps
            assert seen.faults == []
        return record.fingerprint

    one, two = torch.arange(4), torch.arange(4, 8)
    assert train(one, two) == train(one.clone(), two.clone()) is not None
    assert len({train(one, two), train(two, one), train(one)}) == 3


def test_a_run_that_goes_on_fingerprints_the_steps_that_it_did_before() -> None:
    """Else there would be nothing to compare them with."""

    def fingerprinted(start: int, last: int) -> set[int]:
        model = torch.nn.Embedding(8, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with observed((model, optimizer)) as seen:
            seen.observer.start_step = start
            for _ in range(start, last):
                model(torch.arange(4)).sum().backward()
                optimizer.step()
                seen.end_step()
            return {start + r.step for r in seen.steps if r.fingerprint is not None}

    whole = fingerprinted(0, 60)
    assert fingerprinted(25, 60) == {step for step in whole if step > 25}
    assert 0 < len(whole) < 30
