"""The arithmetic of gradients: names, what is worst, sums of norms, outliers."""

import math

import pytest
import torch

from rankscope.agent.probes.gradients import measure
from rankscope.agent.probes.gradients.ledger import by_trouble
from rankscope.agent.probes.gradients.names import clean
from rankscope.agent.probes.gradients.outliers import Outliers


@pytest.mark.parametrize(
    ("name", "wrapped", "expected"),
    [
        ("module.a.weight", True, "a.weight"),
        ("_orig_mod.module.a.weight", True, "a.weight"),
        ("module.a.weight", False, "module.a.weight"),
        ("_fsdp_wrapped_module.a._fsdp_wrapped_module.weight", False, "a.weight"),
        ("a._checkpoint_wrapped_module.weight", False, "a.weight"),
    ],
)
def test_names_are_those_of_the_user_s_model(name: str, wrapped: bool, expected: str) -> None:
    """Without what wrappers have put into them."""
    assert clean(name, wrapped=wrapped) == expected


def test_the_worst_of_what_is_not_finite_is_told() -> None:
    """NaN before infinity, infinity before minus infinity; with the count of elements."""
    numbers = torch.tensor([1.0, math.inf, -math.inf, math.nan])
    assert measure.bad(numbers) == ("nan", 3)
    assert measure.bad(numbers[:3]) == ("inf", 2)
    assert measure.bad(numbers[2:3]) == ("-inf", 1)
    assert measure.bad(numbers[:1]) is None
    assert measure.bad(torch.tensor([1e30])) is None


def test_norms_add_up_without_overflowing() -> None:
    """NaN wins over infinity."""
    assert measure.total([3e200, 4e200]) == pytest.approx(5e200)
    assert math.isnan(measure.total([math.inf, math.nan]))
    assert measure.total([math.inf, 1.0]) == math.inf
    assert measure.total([]) == 0.0


def test_what_is_worst_comes_first_and_the_rest_is_counted() -> None:
    """A message has room for so many names."""
    names = [f"layer.{index}" for index in range(2000)]
    values = {index: float(index) for index in range(2000)} | {7: math.nan}
    told, left_out = by_trouble(names, values)
    assert (told[0].name, told[0].local_norm, told[0].value) == ("layer.7", None, "nan")
    assert told[1].name == "layer.1999"
    assert len(told) + left_out == 2000


def test_an_outlier_is_ten_times_its_own_past() -> None:
    """Of at least five steps; zero and what is not finite do not count."""
    outliers = Outliers()
    for norm in (1.0, 2.0, 0.0, math.inf, math.nan, 1.0, 1.5):
        assert not outliers.leaves(1e6)
        outliers.completed(norm)
    assert not outliers.leaves(1e6)
    outliers.completed(1.0)
    assert outliers.leaves(15.1)
    assert not outliers.leaves(14.0)
    assert not outliers.leaves(math.inf)
    assert not outliers.leaves(0.0)


@pytest.mark.parametrize("steps", [5, 11, 40, 64, 300])
@pytest.mark.parametrize("factor", [3.0, 30.0])
def test_a_hard_batch_hides_no_outlier_after_it(steps: int, factor: float) -> None:
    """What all ranks have at once, as training text may bring it about, is in the past then, too;
    where it is usual it is none."""
    outliers = Outliers()
    for step in range(steps):
        outliers.completed(1.0 + step % 2)
    assert outliers.leaves(94.0)
    outliers.completed(94.0)
    assert outliers.leaves(94.0 * factor)
    for _ in range(64):
        outliers.completed(94.0)
    assert not outliers.leaves(94.0 * 3.0)
    assert outliers.leaves(94.0 * 30.0)
