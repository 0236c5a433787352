"""A small model and a plain loop around it, the same numbers every time."""

from typing import Any

import torch


def small() -> torch.nn.Sequential:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))


def train(
    model: torch.nn.Module, optimizer: Any, steps: int = 3, microbatches: int = 1, scale: float = 1
) -> list[float]:
    """Plain training on random data that is the same every time; the mean losses of the steps."""
    data = torch.Generator().manual_seed(5)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        step_losses = []
        for _ in range(microbatches):
            loss = model(torch.randn(4, 8, generator=data)).pow(2).mean() * scale
            loss.backward()
            step_losses.append(loss.item())
        optimizer.step()
        losses.append(sum(step_losses) / len(step_losses))
    return losses


def weights(model: torch.nn.Module) -> list[torch.Tensor]:
    return [value.clone() for value in model.state_dict().values()]


def same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(left, right, strict=True))


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
