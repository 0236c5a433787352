"""A watched model can be converted whenever an unwatched one can."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from rankscope.agent.probes.gradients.probe import Gradients
from support.observed import observed

WIDE = 192
"""A layer of WIDE × WIDE is large."""


@pytest.fixture
def swapping() -> Iterator[None]:
    """``Module.to`` swaps parameters, which it refuses where anybody refers to one."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(before)


def make(kind: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDE, WIDE), torch.nn.Tanh(), torch.nn.Linear(WIDE, WIDE)
    )
    if kind == "frozen":
        model.get_parameter("0.weight").requires_grad_(False)
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.SGD if kind == "sgd" else torch.optim.AdamW
    return model, optimizer(trained, lr=1e-3)


def train(model: Any, optimizer: Any, microbatches: int, updates: bool = True) -> None:
    for _ in range(microbatches):
        torch.autograd.backward(model(torch.randn(2, WIDE)).pow(2).mean())
    if updates:
        optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("kind", ["sgd", "adam", "frozen"])
@pytest.mark.parametrize("microbatches", [1, 3])
@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.usefixtures("swapping")
def test_a_watched_model_is_converted_after_any_step(
    kind: str, microbatches: int, stays: bool
) -> None:
    """Also after updates that were left out, and after a backward that raised."""
    model, optimizer = make(kind)
    with observed((model, optimizer)) as seen:
        train(model, optimizer, microbatches)
        probe = seen.observer.gradients
        assert isinstance(probe, Gradients)
        hooks = probe.places[0].hooks
        assert hooks is not None
        hooks.stays = stays
        for step in range(8):
            train(model, optimizer, microbatches, updates=step not in (5, 6))
            model.to(torch.float32)

        def refuse(_gradient: torch.Tensor) -> None:
            raise ArithmeticError("the user's own")

        handle = model.get_parameter("0.bias").register_hook(refuse)  # type: ignore[no-untyped-call]
        with pytest.raises(ArithmeticError):
            train(model, optimizer, 1)
        handle.remove()
        optimizer.zero_grad()
        model.to(torch.float64).to(torch.float32)
        train(model, optimizer, microbatches)
        assert seen.faults == []


@pytest.mark.parametrize("microbatches", [1, 3])
@pytest.mark.usefixtures("lone_group")
def test_a_sharded_model_is_converted_after_any_step(microbatches: int) -> None:
    """FSDP2's parameters are DTensors, which are always swapped."""
    mesh = init_device_mesh("cpu", (1,))
    model, _ = make("adam")
    for layer in (model.get_submodule("0"), model.get_submodule("2")):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with observed((model, optimizer)) as seen:
        for _ in range(6):
            train(model, optimizer, microbatches)
            model.to(torch.float32)
        assert seen.faults == []
