"""Own gradients of parameters of all kinds, and of models that grow, share or are several."""

import math
from typing import Any

import pytest
import torch

from support.gradients import Net, facts, nan_in, norms, own_signs, sgd, step
from support.observed import observed


def test_one_process_has_the_norm_of_its_gradients() -> None:
    """In each step, as one computes it by hand."""
    model = Net()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        expected = [step(model, optimizer) for _ in range(3)]
        assert norms(seen) == pytest.approx(expected, rel=1e-5)
        assert facts(seen) == {"numerics": "hooks on parameters"}


class Odd(torch.nn.Module):
    """Parameters of all kinds, one output."""

    def __init__(self) -> None:
        super().__init__()
        self.tied = torch.nn.Linear(8, 8)
        self.again = torch.nn.Linear(8, 8)
        self.again.weight = self.tied.weight
        self.frozen = torch.nn.Parameter(torch.ones(8), requires_grad=False)
        self.whole = torch.nn.Parameter(torch.ones(8, dtype=torch.int64), requires_grad=False)
        self.empty = torch.nn.Parameter(torch.ones(0))
        self.wide = torch.nn.Parameter(torch.ones(8, dtype=torch.float64))
        self.angle = torch.nn.Parameter(torch.ones(8, dtype=torch.complex64))
        self.short = torch.nn.Parameter(torch.ones(8, dtype=torch.float16))
        self.unused = torch.nn.Parameter(torch.ones(8))
        self.rows = torch.nn.Embedding(5, 8, sparse=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.again(self.tied(x)) * self.frozen * self.whole + self.rows(torch.tensor([1, 1]))
        y = y.double() * self.wide + self.empty.sum() + (self.angle.real + self.angle.imag)
        out: torch.Tensor = y.float() + self.short.float()
        return out


def odd_optimizer(model: Odd) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)


def test_all_kinds_of_parameters_are_looked_at() -> None:
    """Sparse, complex, float64, fp16, empty, frozen, tied, integer and unused ones; in the norm."""
    model = Odd()
    optimizer = odd_optimizer(model)
    with observed((model, optimizer)) as seen:
        model(torch.ones(2, 8)).pow(2).mean().backward()
        squares = 0.0
        for parameter in model.parameters():
            if parameter.grad is not None:
                values = parameter.grad._values() if parameter.grad.is_sparse else parameter.grad
                squares += float(torch.linalg.vector_norm(values.to(torch.complex128)) ** 2)
        optimizer.step()
        assert norms(seen) == pytest.approx([math.sqrt(squares)], rel=1e-3)
        assert seen.faults == []
        assert facts(seen) == {"numerics": "hooks on parameters"}


@pytest.mark.parametrize("name", ["wide", "angle", "short", "again.bias"])
def test_a_nan_is_found_in_each_kind_of_parameter(name: str) -> None:
    """With the name of the user's model."""
    model = Odd()
    optimizer = odd_optimizer(model)
    with observed((model, optimizer)) as seen, nan_in(model.get_parameter(name)):
        model(torch.ones(2, 8)).pow(2).mean().backward()
        optimizer.step()
        found = [sign for sign in own_signs(seen) if sign.step == 1]
        assert [(sign.name, sign.value, sign.microbatch) for sign in found] == [(name, "nan", 1)]


def test_a_tied_parameter_is_named_once() -> None:
    """By its first name."""
    model = Odd()
    optimizer = odd_optimizer(model)
    with observed((model, optimizer)) as seen, nan_in(model.again.weight):
        model(torch.ones(2, 8)).pow(2).mean().backward()
        optimizer.step()
        assert [sign.name for sign in own_signs(seen) if sign.step == 1] == ["tied.weight"]


def test_parameters_added_later_are_looked_at_before_long() -> None:
    """A model may grow while it trains."""
    model: Any = Net()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        step(model, optimizer)
        model.second = torch.nn.Sequential(model.second, torch.nn.Linear(2, 2))
        for _ in range(64):
            expected = step(model, optimizer)
        assert seen.observer.gradients.ledger.norm == pytest.approx(expected, rel=1e-5)


def test_a_model_attached_twice_is_looked_at_once() -> None:
    """Neither its norm nor its signs are doubled."""
    model = Net()
    optimizer = sgd(model)
    with observed((model, optimizer), (model, optimizer)) as seen, nan_in(model.first.weight):
        step(model, optimizer)
        assert [sign.name for sign in own_signs(seen)] == ["first.weight"]
        assert len(model.first.weight._post_accumulate_grad_hooks) == 1


def test_two_models_with_an_optimizer_each_are_both_looked_at() -> None:
    """As a GAN has them: one norm a step of the first optimizer, over what was computed in it."""
    maker, judge = Net(), Net()
    ours, theirs = sgd(maker), sgd(judge)
    with observed((maker, ours), (judge, theirs)) as seen:
        for _ in range(2):
            expected = math.hypot(step(judge, theirs), step(maker, ours))
        assert norms(seen)[-1] == pytest.approx(expected, rel=1e-5)
        with nan_in(judge.second.bias):
            step(judge, theirs)
            step(maker, ours)
        assert ("second.bias", "nan") in [(sign.name, sign.value) for sign in own_signs(seen)]
