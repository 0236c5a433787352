"""What ``attach`` returns."""

import contextlib
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from rankscope.agent.session import Session

Batch = TypeVar("Batch")


class Agent:
    """The handle to the observation of this process. May be discarded; may be used in ``with``.

    With ``RANKSCOPE=off`` (or where observing could not begin) all of it does nothing.
    """

    def __init__(self, session: "Session | None") -> None:
        self._session = session
        self._entered = 0

    def batches(self, loader: Iterable[Batch]) -> Iterable[Batch]:
        """``loader``, with the wait for each batch timed; as long and as re-iterable as it is."""
        return loader if self._session is None else self._session.batches(loader)

    def end_step(self, loss: Any = None, tokens: int | None = None) -> bool:
        """The step ends here: the one boundary where commands act.

        Returns whether training is to go on: False once an operator (or a signal, see ``attach``)
        has stopped the run, on all ranks at the same step. A loop may look at that, or at
        :attr:`should_stop`; one that does not goes on.

        Waits for nothing, but while all ranks agree on a request (at most 2 s), stand together at
        the boundary that they have agreed on (at most 40 s, and only for a stop or a pause), or
        are paused there.

        ``loss``: a number, or a one-element tensor (of a CUDA device it is read at a later step).
        ``tokens``: how many this rank trained on in this step.
        """
        return True if self._session is None else self._session.end_step(loss, tokens)

    @property
    def should_stop(self) -> bool:
        """Whether the run was stopped: true on all ranks after the same ``end_step``."""
        return self._session is not None and self._session.should_stop

    def expect(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Marks a stretch that may be long (``with agent.expect("evaluation"):``).

        It is shown by that name, and is not called a hang. Stretches may be nested.
        """
        if self._session is None:
            return contextlib.nullcontext()
        return self._session.expect(what)

    def close(self) -> None:
        """End the observation: every hook is removed and the hub is told. For at most 200 ms."""
        if self._session is not None:
            self._session.close("finished")

    def pause_observing(self) -> None:
        """Remove every hook and let the sending thread rest, as if nothing were attached.

        For measuring what observing costs.
        """
        if self._session is not None:
            self._session.pause()

    def costs_s(self) -> tuple[float, float]:
        """What observing took on the training thread so far: (bookkeeping, norm kernels)."""
        return (0.0, 0.0) if self._session is None else self._session.costs_s()

    def resume_observing(self) -> None:
        """Place the hooks again."""
        if self._session is not None:
            self._session.resume()

    def __enter__(self) -> Self:
        self._entered += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Reports what ends the block, and never swallows it."""
        self._entered -= 1
        if self._session is not None and self._entered <= 0:
            self._session.leave(error)
