"""The points of a step at which faults strike on this rank.

``begin``
    before the forward of a microbatch
``data``, ``forward``, ``backward``, ``optimizer``
    inside that phase: while a batch is collated, when the middle block's forward begins, when its
    backward begins, when the optimizer has updated and its step has not returned
``end``
    when a step that updated is over
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from rankscope.trainers.data import Batch, Data
from rankscope.trainers.model import Transformer
from rankscope.trainers.parallel import Parallel

Action = Callable[[], None]
Window = list[Batch]


class DataOver(Exception):
    """This rank has no more data: not even another epoch."""


@dataclass(frozen=True)
class EndingData(Data):
    """Data that may be over for good."""

    points: "Points | None" = None

    def epoch(self, epoch: int, start: int = 0) -> "DataLoader[Batch]":
        if self.points is not None and self.points.data_over:
            raise DataOver
        return super().epoch(epoch, start)


class Points:
    """Counts steps and microbatches of one rank, and lets actions happen at the points."""

    def __init__(self, parallel: Parallel, optimizer: Optimizer, data: Data) -> None:
        self.step = 1
        """The step in work."""
        self.microbatch = 0
        """The microbatch in work; 0 before the first forward of the step."""
        self.reading = 0
        """The microbatch of the step that was read last."""
        self.data_over = False
        self.leaves = False
        """Set to leave the loop instead of beginning another step."""
        self.change_batch: Callable[[Batch], Batch] = lambda batch: batch
        self._updates = False
        self._actions: dict[str, list[Action]] = {}
        self._model = bare(parallel.model)
        self._optimizer = optimizer
        self._within = parallel.microbatch
        self.data = EndingData(data.sampler, data.loader, data.held_out, data.order, points=self)
        self.parallel = replace(parallel, microbatch=self._microbatch)

    def on(self, point: str, action: Action) -> None:
        """Do ``action`` whenever the point is passed."""
        if point not in self._actions:
            self._actions[point] = []
            self._place(point)
        self._actions[point].append(action)

    def once(self, point: str, step: int, action: Action, microbatch: int | None = None) -> None:
        """Do ``action`` when the point is first passed in ``step``, or in its ``microbatch``."""
        done = False

        def strike() -> None:
            nonlocal done
            if done or self.step != step or microbatch not in (None, self.microbatch):
                return
            done = True
            action()

        self.on(point, strike)

    def windows(self, windows: Iterator[Window]) -> Iterator[Window]:
        """``windows`` as they are, until this rank leaves or its data is over."""
        while not self._left():
            try:
                window = next(windows)
            except (StopIteration, DataOver):
                return
            yield window
            if self._updates:
                self._pass("end")
                self.step += 1
            self._updates, self.microbatch, self.reading = False, 0, 0

    def _left(self) -> bool:
        self._pass("loop")
        return self.leaves

    @contextmanager
    def _microbatch(self, last: bool) -> Iterator[None]:
        self.microbatch += 1
        self._pass("begin")
        with self._within(last):
            yield
        self._updates = last

    def _pass(self, point: str) -> None:
        for action in self._actions.get(point, ()):
            action()

    def _place(self, point: str) -> None:
        block = self._model.blocks[len(self._model.blocks) // 2]
        if point == "data":
            self._place_in_loader()
        elif point == "forward":
            block.register_forward_pre_hook(self._on_forward)
        elif point == "backward":
            block.register_forward_hook(self._on_output)
        elif point == "optimizer":
            self._optimizer.register_step_post_hook(lambda *_: self._pass("optimizer"))

    def _place_in_loader(self) -> None:
        loader = self.data.loader
        collate = loader.collate_fn

        def collated(samples: list[Any]) -> Any:
            self.reading += 1
            self._pass("data")
            if self.data_over:
                raise StopIteration
            return self.change_batch(collate(samples))

        loader.collate_fn = collated

    def _on_forward(self, module: nn.Module, args: Any) -> None:
        if torch.is_grad_enabled():
            self._pass("forward")

    def _on_output(self, module: nn.Module, args: Any, output: torch.Tensor) -> None:
        if output.requires_grad:
            hook: Any = output.register_hook
            hook(lambda gradient: self._pass("backward"))


def bare(model: nn.Module) -> Transformer:
    """The model itself, without what is wrapped around it."""
    for wrapper in ("module", "_orig_mod"):
        inner = getattr(model, wrapper, None)
        if isinstance(inner, nn.Module):
            return bare(inner)
    assert isinstance(model, Transformer)
    return model


def middle(names: Iterable[str]) -> str:
    """The name in the middle, to hurt something that is neither first nor last."""
    found = list(names)
    return found[len(found) // 2]
