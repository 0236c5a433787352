"""Looking at gradients leaves nothing behind, and a fault of ours ends the looking alone."""

import copy
import gc
import io
import pickle
import weakref
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from rankscope.agent.probes.gradients.accumulated import Accumulated
from support.gradients import Net, nan_in, norms, sgd, step
from support.observed import observed


def test_the_model_carries_nothing_away() -> None:
    """Into a copy, a pickle or a state; and nothing is left on it at the end."""
    model = Net()
    optimizer = sgd(model)
    plain = pickle.dumps(Net())
    with observed((model, optimizer)):
        step(model, optimizer)
        optimizer.zero_grad()
        copied = copy.deepcopy(model)
        loaded = pickle.loads(pickle.dumps(model))
        torch.save(model, io.BytesIO())
        for other in (copied, loaded):
            assert not any(one._post_accumulate_grad_hooks for one in other.parameters())
        assert set(model.state_dict()) == set(Net().state_dict())
    assert len(pickle.dumps(model)) == len(plain)
    assert not any(Accumulated.has(one) for one in model.parameters())


def test_gradients_and_model_are_not_kept_alive() -> None:
    """What is observed goes when the program lets go of it."""
    model: Any = Net()
    optimizer: Any = sgd(model)
    with observed() as seen:
        seen.observer.watch(model, optimizer)
        step(model, optimizer)
        gradient = weakref.ref(model.first.weight.grad)
        optimizer.zero_grad()
        gc.collect()
        assert gradient() is None
        kept = weakref.ref(model.first.weight)
        del model, optimizer
        seen.observer.noted.clear()
        gc.collect()
        assert kept() is None


@pytest.mark.parametrize("broken", ["saw", "begin", "end", "_look"])
def test_a_fault_of_ours_ends_the_looking_and_nothing_else(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training goes on to the same weights; the fault is told once."""
    apart, model = Net(), Net()
    theirs, ours = sgd(apart), sgd(model)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("broken")

    with observed((model, ours)) as seen:
        monkeypatch.setattr(seen.observer.gradients.ledger, broken, fail)
        for scale in (1.0, 1e25, 1.0):
            step(apart, theirs, scale=min(scale, 1e3))
            with nan_in(model.first.bias) if scale > 1e3 and broken == "_look" else nullcontext():
                step(model, ours, scale=min(scale, 1e3))
        assert seen.faults == ["gradients"]
    if broken != "_look":
        for one, other in zip(apart.parameters(), model.parameters(), strict=True):
            assert torch.equal(one, other)


def test_a_backward_that_raises_leaves_nothing_behind() -> None:
    """The next one is looked at as if there had been none."""
    model = Net()
    optimizer = sgd(model)

    def refuse(gradient: torch.Tensor) -> None:
        raise ArithmeticError("the user's own")

    with observed((model, optimizer)) as seen:
        handle = model.first.weight.register_hook(refuse)  # type: ignore[no-untyped-call]
        with pytest.raises(ArithmeticError):
            model(torch.ones(4, 8)).pow(2).mean().backward()
        handle.remove()
        expected = step(model, optimizer)
        assert norms(seen) == pytest.approx([expected], rel=1e-5)
        assert seen.faults == []


def test_gradients_that_can_be_differentiated_are_left_alone() -> None:
    """``create_graph`` gives gradients that are part of a graph."""
    model = Net()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        x = torch.ones(4, 8, requires_grad=True)
        with pytest.warns(UserWarning, match="create_graph"):
            model(x).pow(2).mean().backward(create_graph=True)
        penalty = model.first.weight.grad
        assert penalty is not None
        assert penalty.requires_grad
        for parameter in model.parameters():
            parameter.grad = None
        step(model, optimizer)
        assert seen.faults == []
