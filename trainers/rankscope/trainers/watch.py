"""How a trainer is watched: with every call of the agent, with ``attach`` alone, or not at all."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from signal import Signals
from typing import Protocol, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from rankscope.trainers.resume import Saving

T = TypeVar("T")


class Watcher(Protocol):
    """What the step loop calls on the agent."""

    def batches(self, loader: Iterable[T]) -> Iterable[T]: ...

    def end_step(self, loss: Tensor, tokens: int) -> bool: ...

    def expect(self, what: str) -> AbstractContextManager[None]: ...


class Unwatched:
    """The same calls, doing nothing."""

    def batches(self, loader: Iterable[T]) -> Iterable[T]:
        return loader

    def end_step(self, loss: Tensor, tokens: int) -> bool:
        return True

    def expect(self, what: str) -> AbstractContextManager[None]:
        return nullcontext()


def watch(
    how: str,
    model: nn.Module,
    optimizer: Optimizer,
    name: str,
    saving: Saving | None = None,
    on_signal: Sequence[Signals] = (),
) -> AbstractContextManager[Watcher]:
    """The agent for ``--attach``: ``full``, ``plain`` or ``none``; the run is called ``name``."""
    if how == "none":
        return nullcontext(Unwatched())
    from rankscope.agent import attach  # not even imported when nothing is to watch

    # ``plain`` is all that most people write, but that a run which goes on says from where.
    agent = attach(
        model,
        optimizer,
        checkpoint=saving.checkpoint if saving is not None else None,
        name=name,
        start_step=saving.start_step if saving is not None else 0,
        on_signal=on_signal or None,
    )
    return agent if how == "full" else nullcontext(Unwatched())
