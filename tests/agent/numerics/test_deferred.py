"""Large gradients that stay where they are, as under DDP, are read when all of them are there."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from rankscope.agent.probes.gradients.probe import Gradients
from rankscope.protocol.messages import Stage
from support.gradients import nan_in, norms, own_signs, sgd
from support.observed import Observed, observed

WIDE = 192
"""A layer of WIDE × WIDE is large."""


class Run:
    """Two layers; their gradients stay, as far as the hooks know, until the backward has ended."""

    def __init__(self, seen: Observed) -> None:
        torch.manual_seed(1)
        self.seen = seen
        self.model = torch.nn.Sequential(
            torch.nn.Linear(WIDE, WIDE), torch.nn.Tanh(), torch.nn.Linear(WIDE, WIDE)
        )
        self.optimizer = sgd(self.model, lr=1e-3)
        seen.observer.watch(self.model, self.optimizer)
        self.step()
        probe = seen.observer.gradients
        assert isinstance(probe, Gradients)
        hooks = probe.places[0].hooks
        assert hooks is not None
        hooks.stays = True
        self.turns: Any = probe.ledger.turns

    def backward(self) -> None:
        self.optimizer.zero_grad()
        loss: torch.Tensor = self.model(torch.randn(4, WIDE)).pow(2).mean()
        torch.autograd.backward(loss)

    def step(self) -> float:
        """The norm of its gradients."""
        self.backward()
        gradients = [one.grad for one in self.model.parameters() if one.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients))
        self.optimizer.step()
        return norm


@pytest.fixture
def run() -> Iterator[Run]:
    with observed() as seen:
        yield Run(seen)


def test_the_norm_is_the_same(run: Run) -> None:
    """Reading later changes nothing in what is read."""
    expected = [run.step() for _ in range(3)]
    assert norms(run.seen)[1:] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["0.weight", "2.weight", "0.bias"])
def test_what_is_bad_is_named(run: Run, name: str) -> None:
    """With its parameter, in its step."""
    with nan_in(run.model.get_parameter(name)):
        run.step()
    named = [(sign.stage, sign.name, sign.step) for sign in own_signs(run.seen)]
    assert (Stage.GRADIENT, name, 2) in named


def test_each_gradient_is_read_after_the_last_has_come(run: Run) -> None:
    """What is written to one of them in the meantime, within the backward, is seen."""
    first, last = run.model.get_parameter("0.weight"), run.model.get_parameter("2.weight")

    def spoil(_parameter: torch.Tensor) -> None:
        assert last.grad is not None
        last.grad[0, 0] = torch.nan

    handle = first.register_post_accumulate_grad_hook(spoil)  # type: ignore[no-untyped-call]
    run.step()
    handle.remove()
    assert [sign.name for sign in own_signs(run.seen)][:1] == ["2.weight"]


def test_one_that_is_gone_by_then_is_not_read_and_no_norm_is_told(run: Run) -> None:
    """A program that lets go of gradients within the backward does as it likes."""
    weight = run.model.get_parameter("2.weight")

    def let_go(parameter: torch.Tensor) -> None:
        parameter.grad = None

    handle = weight.register_post_accumulate_grad_hook(let_go)  # type: ignore[no-untyped-call]
    run.step()
    handle.remove()
    run.step()
    assert [norm is None for norm in norms(run.seen)] == [False, True, False]
    assert run.seen.faults == []


def test_a_backward_that_raises_keeps_no_gradient_alive(run: Run) -> None:
    """Whoever tries again with less needs the room."""

    def refuse(_gradient: torch.Tensor) -> None:
        raise ArithmeticError("the user's own")

    handle = run.model.get_parameter("0.weight").register_hook(refuse)  # type: ignore[no-untyped-call]
    with pytest.raises(ArithmeticError):
        run.backward()
    handle.remove()
    weight = run.model.get_parameter("2.weight")
    assert weight.grad is not None
    kept = weakref.ref(weight.grad.untyped_storage())
    gradient = weakref.ref(weight.grad)
    weight.grad = None
    gc.collect()
    assert gradient() is None
    assert kept() is None
    expected = run.step()
    assert norms(run.seen)[1:] == pytest.approx([expected], rel=1e-5)


def test_where_large_ones_are_left_out_a_bad_small_one_has_them_read(run: Run) -> None:
    """In its own step: they are still there."""
    run.turns.begin = lambda *_: setattr(run.turns, "left_out", True)
    run.step()
    with nan_in(run.model.get_parameter("0.bias")), nan_in(run.model.get_parameter("2.weight")):
        run.step()
    assert norms(run.seen)[1] is None
    assert {sign.name for sign in own_signs(run.seen)} == {"0.bias", "2.weight"}
