"""The points of a step in a training script that knows nothing of faults, by torch's own hooks.

``forward``
    when the first module has computed its output, with gradients on
``backward``
    when the gradient of that output is there
``optimizer``
    when the optimizer is called and has not updated anything
``data``
    when torch's DataLoader fetches a batch

Steps are counted by what the first optimizer does, from 1. Nothing is placed before the step in
which a fault strikes but one hook that counts.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import dataloader

Action = Callable[[], None]


class ScriptPoints:
    """Counts the steps of this process, and lets one action happen at a point of one of them."""

    def __init__(self) -> None:
        self.step = 1
        """The step in work."""
        self._pid = os.getpid()
        self._first: int | None = None  # id of the optimizer that counts
        self._waiting: list[tuple[int, Action]] = []
        register_optimizer_step_post_hook(self._stepped)

    def once(self, point: str, step: int, action: Action) -> None:
        """Do ``action`` when ``point`` is first passed in ``step``."""
        done = False

        def strike() -> None:
            nonlocal done
            # A loader's worker is a fork that has these hooks as well.
            if not done and self.step == step and os.getpid() == self._pid:
                done = True
                action()

        place = {
            "forward": on_forward,
            "backward": on_backward,
            "optimizer": on_optimizer,
            "data": on_data,
        }[point]
        if step <= self.step:
            place(strike)
        else:
            self._waiting.append((step, lambda: place(strike)))

    def _stepped(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._first is None:
            self._first = id(optimizer)
        if id(optimizer) != self._first:
            return
        self.step += 1
        for step, place in self._waiting:
            if step == self.step:
                place()


def on_forward(strike: Action) -> None:
    register_module_forward_hook(lambda module, args, output: _with_gradients(strike))


def _with_gradients(strike: Action) -> None:
    if torch.is_grad_enabled():  # else it may be an evaluation
        strike()


def on_backward(strike: Action) -> None:
    def on_output(module: Any, args: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.requires_grad:
            hook: Any = output.register_hook
            hook(lambda gradient: strike())

    register_module_forward_hook(on_output)


def on_optimizer(strike: Action) -> None:
    placed: set[int] = set()

    def on_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        # On the optimizer itself, whose hooks come after those for all: whoever watches it has
        # seen its step begin by then.
        if id(optimizer) not in placed:
            placed.add(id(optimizer))
            optimizer.register_step_pre_hook(lambda *_: strike())

    register_optimizer_step_pre_hook(on_step)


def on_data(strike: Action) -> None:
    kinds = (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter)
    for kind in kinds:
        _around_fetching(kind, strike)


def _around_fetching(kind: Any, strike: Action) -> None:
    fetch = kind._next_data

    def _next_data(iterator: Any) -> Any:
        strike()
        return fetch(iterator)

    kind._next_data = _next_data
