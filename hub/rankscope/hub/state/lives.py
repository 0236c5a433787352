"""Which attempt a rank's process belongs to, whatever number its own launcher gives it.

Each node's launcher counts the failures of its own ranks. When those of another node fail, all are
started anew and only that node's number grows: ranks of one attempt then call it by different
numbers. The hub goes by the largest. A process of a smaller one that nobody has heard of, of a rank
that is not there, belongs to the attempt under way, unless another process on its node gave a
larger number: then it is late.
"""

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rankscope.protocol import messages as m

if TYPE_CHECKING:
    from rankscope.hub.state.run import RunState

Process = tuple[str, int]
"""Host and pid."""

OfProcess = m.ProcessSample | m.ProcessEnded | m.ForeignStacks

NOBODY: Process = ("", -1)


class Lives:
    """Told of every message of a rank before anybody else is, and of processes that take over."""

    def __init__(self) -> None:
        self._before: dict[int, Process] = {}
        """For each rank its process of the attempt before."""
        self._anew: dict[int, Process] = {}
        """Processes that took over a rank within this attempt."""
        self._numbers: dict[str, int] = {}
        """For each host the number that its launcher gives this attempt."""
        self._smaller: dict[int, tuple[str, int, int]] = {}
        """Host, pid and number of processes whose number is smaller than the attempt's."""

    def own(self, state: "RunState", message: m.FromRank) -> m.FromRank:
        """``message`` with the number of the attempt that its sender belongs to."""
        number = message.attempt
        if number >= state.attempt:
            return message
        rank = message.rank
        if type(message) is m.Hello:
            if not self._belongs(state, message):
                return message
            self._smaller[rank] = (message.host, message.pid, number)
            self._numbers[message.host] = number
        else:
            known = self._smaller.get(rank)
            if known is None or known[2] != number:
                return message
        return msgspec.structs.replace(message, attempt=state.attempt)

    def is_of(self, state: "RunState", host: str, one: OfProcess) -> bool:
        """Whether what a sentinel on ``host`` tells is of a process of the attempt under way."""
        return one.attempt == state.attempt or self._smaller.get(one.rank) == (
            *(host, one.pid),
            one.attempt,
        )

    def hello(self, hello: m.Hello) -> None:
        """The state has taken in a hello that came through :meth:`own`."""
        self._numbers.setdefault(hello.host, hello.attempt)

    def takes_over(self, hello: m.Hello) -> None:
        """Another process than before has the rank now, in the same attempt."""
        self._anew[hello.rank] = (hello.host, hello.pid)

    def ending(self, state: "RunState") -> None:
        """A new attempt is about to begin, the columns still show the one before.

        A process that took over within it and lives may have come first of the new one.
        """
        over = state.ranks.over()
        for rank in np.flatnonzero(state.ranks.known).tolist():
            process = (state.host(rank), state.ranks.pid.item(rank))
            if over[rank] or self._anew.get(rank) != process:
                self._before[rank] = process

    def _belongs(self, state: "RunState", hello: m.Hello) -> bool:
        rank, process = hello.rank, (hello.host, hello.pid)
        known = self._smaller.get(rank)
        if known == (*process, hello.attempt):
            return True
        if self._numbers.get(hello.host, -1) > hello.attempt:
            return False
        if self._before.get(rank, NOBODY) == process or rank >= state.ranks.size:
            return False
        ranks = state.ranks
        return not (ranks.known[rank] and not ranks.over()[rank])

    # --- as a part of the state ---------------------------------------------------------------

    def reserve(self, size: int) -> None:
        """It grows with what is told, and only for ranks that the columns have."""

    def forget(self, rank: int) -> None:
        """Who has the rank now is told by :meth:`takes_over` and :meth:`own`."""

    def forget_all(self) -> None:
        self._anew.clear()
        self._numbers.clear()
        self._smaller.clear()

    def dump(self) -> Any:
        return [self._before, self._anew, self._numbers, self._smaller]

    def load(self, saved: Any) -> None:
        before, anew, numbers, smaller = saved
        of_ranks = dict[int, Process]
        self._before = msgspec.convert(before, of_ranks, strict=False)
        self._anew = msgspec.convert(anew, of_ranks, strict=False)
        self._numbers = msgspec.convert(numbers, dict[str, int])
        self._smaller = msgspec.convert(smaller, dict[int, tuple[str, int, int]], strict=False)
