"""Ends that a collective which does not match can bring about: gloo aborts, resets and complains.

Whoever ends like this may be an innocent neighbour of the one that did something else.
"""

import re

import numpy as np

from rankscope.hub.diagnose.endings import SIGABRT
from rankscope.hub.state import RunState
from rankscope.hub.state.words import RankException

_WORDS = re.compile(
    r"gloo|nccl|process ?group|preamble|connection (was )?(reset|closed)|broken pipe"
    r"|socket|c10d|collective|enforce fail",
    re.IGNORECASE,
)
_TYPES = ("RuntimeError", "DistBackendError", "DistNetworkError", "DistError", "ConnectionError")


def from_collective(raised: RankException) -> bool:
    """Whether the exception may come out of a collective that failed."""
    if raised.from_peer:
        return True
    return raised.type in _TYPES and bool(_WORDS.search(f"{raised.message}\n{raised.traceback}"))


def failed_ranks(state: RunState) -> list[int]:
    """Ranks whose end a failing collective may have brought about."""
    aborted = np.flatnonzero(state.ranks.signal == SIGABRT).tolist()
    raised = [rank for rank, e in state.words.exceptions.items() if from_collective(e)]
    return sorted({*aborted, *raised})


def broke_s(state: RunState, failed: list[int]) -> float:
    """When the first of them ended."""
    times = []
    for rank in failed:
        raised = state.words.exceptions.get(rank)
        if raised is not None:
            times.append(raised.at_s)
        ended_s = state.ranks.ended_s.item(rank)
        if ended_s == ended_s:
            times.append(ended_s)
    return min(times, default=0.0)
