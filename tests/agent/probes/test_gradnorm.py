"""The norm of gradients of all types and sizes."""

import math

import pytest
import torch

from rankscope.agent.probes.gradnorm import local_norm


def gradients(*tensors: torch.Tensor) -> float | None:
    found = local_norm(tensors)
    if found is None:
        return None
    assert isinstance(found.value, float)
    return found.value


def test_the_norm_of_all_dtypes() -> None:
    """Mixed precisions go into one norm; float16 does not overflow, float64 is not refused."""
    half = torch.full((100,), 1000.0, dtype=torch.float16)
    double = torch.full((3,), 4.0, dtype=torch.float64)
    assert gradients(half, double) == pytest.approx(math.sqrt(100 * 1e6 + 48), rel=1e-4)
    assert gradients(torch.ones(4, dtype=torch.bfloat16), torch.zeros(0)) == pytest.approx(2.0)


def test_a_large_norm_is_not_called_infinite() -> None:
    """Squares overflow beyond 1e19; the norm itself does not."""
    assert gradients(torch.full((4,), 1e25)) == pytest.approx(2e25, rel=1e-4)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_nonfinite_gradient_shows(bad: float) -> None:
    """One bad element makes the norm nonfinite."""
    value = gradients(torch.ones(5), torch.tensor([1.0, bad]))
    assert value is not None
    assert not math.isfinite(value)


def test_no_norm_where_there_is_none() -> None:
    """No gradients, or sparse ones: no number rather than a wrong one."""
    assert gradients() is None
    assert gradients(torch.ones(3).to_sparse()) is None
