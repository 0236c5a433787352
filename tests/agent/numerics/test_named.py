"""Parameters by name, of models of every kind."""

import pytest
import torch

from rankscope.agent.probes.numerics.named import Named
from support.gradients import norms
from support.observed import observed


@pytest.fixture
def scripted() -> torch.nn.Module:
    """A module of TorchScript has no dictionaries of parameters and modules, but something alike;
    half of it is frozen."""
    plain = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    plain[0].requires_grad_(False)
    model: torch.nn.Module = torch.jit.script(plain)
    return model


def trained(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_frozen_parameters_of_torchscript_are_found_again(scripted: torch.nn.Module) -> None:
    """They are no optimizer's, so it is the modules that are asked."""
    optimizer, named = trained(scripted), Named()
    named.add_model(scripted)
    named.add_optimizer(optimizer)
    first, again = named.read(), named.read()
    assert sorted(first.names) == ["0.bias", "0.weight", "1.bias", "1.weight"]
    assert (again.names, again.trained) == (first.names, first.trained)
    assert all(one is other for one, other in zip(first.tensors, again.tensors, strict=True))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_is_watched(scripted: torch.nn.Module) -> None:
    """Like any other model, without a fault."""
    optimizer = trained(scripted)
    with observed((scripted, optimizer)) as seen:
        for _ in range(3):
            scripted(torch.ones(2, 4)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert seen.faults == []
        assert len(norms(seen)) == 3
        assert all(norm is not None and norm > 0 for norm in norms(seen))
