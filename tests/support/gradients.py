"""A small net, a step of it, and what was seen of its gradients."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from rankscope.protocol.messages import Signs, Stage
from support.observed import Observed


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.second(torch.tanh(self.first(x)))
        return out


def sgd(model: torch.nn.Module, lr: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr)


def step(model: Any, optimizer: Any, scale: float = 1.0) -> float:
    """One step; the norm of its gradients."""
    optimizer.zero_grad()
    (model(torch.ones(4, 8)).pow(2).mean() * scale).backward()
    norm = math.sqrt(
        sum(float(p.grad.double().norm() ** 2) for p in model.parameters() if p.grad is not None)
    )
    optimizer.step()
    return norm


def norms(seen: Observed) -> list[float | None]:
    return [record.local_norm for record in seen.steps]


def own_signs(seen: Observed) -> list[Any]:
    return [
        sign
        for kind, fields in seen.urgent
        if kind is Signs
        for sign in fields["signs"]
        if sign.stage in (Stage.GRADIENT, Stage.CAST, Stage.REDUCED)
    ]


def facts(seen: Observed) -> dict[str, str]:
    found: dict[str, str] = seen.observer.gradients.read()
    return found


@contextmanager
def nan_in(parameter: torch.Tensor) -> Iterator[None]:
    """One number of the gradient is NaN in each backward meanwhile."""

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        changed = gradient.clone()
        changed.view(-1)[0] = math.nan
        return changed

    handle = parameter.register_hook(spoil)  # type: ignore[no-untyped-call]
    yield
    handle.remove()
