"""How a trainer is watched: with every call of the agent, with ``attach`` alone, or not at all."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from rankscope.trainers.resume import Saving

T = TypeVar("T")


class Watcher(Protocol):
    """What the step loop calls on the agent."""

    def batches(self, loader: Iterable[T]) -> Iterable[T]: ...

    def end_step(self, loss: Tensor, tokens: int) -> None: ...

    def expect(self, what: str) -> AbstractContextManager[None]: ...


class Unwatched:
    """The same calls, doing nothing."""

    def batches(self, loader: Iterable[T]) -> Iterable[T]:
        return loader

    def end_step(self, loss: Tensor, tokens: int) -> None:
        pass

    def expect(self, what: str) -> AbstractContextManager[None]:
        return nullcontext()


def watch(
    how: str, model: nn.Module, optimizer: Optimizer, name: str, saving: Saving
) -> AbstractContextManager[Watcher]:
    """The agent for ``--attach``: ``full``, ``plain`` or ``none``; the run is called ``name``."""
    if how == "none":
        return nullcontext(Unwatched())
    from rankscope.agent import attach  # not even imported when nothing is to watch

    if how == "plain":
        # Is all that most people write, but that a run which goes on says from where.
        attach(
            model,
            optimizer,
            checkpoint=saving.checkpoint,
            name=name,
            start_step=saving.start_step,
        )
        return nullcontext(Unwatched())
    return attach(
        model, optimizer, checkpoint=saving.checkpoint, name=name, start_step=saving.start_step
    )
