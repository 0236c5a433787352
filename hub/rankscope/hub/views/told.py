"""Which rows say something new: a rank that only spoke again has no news but that.

Most of what ranks send is that they are still there, several times a second from each of
thousands. A client that keeps rows asks for those with news, and for the rest learns when each
was heard of, in two numbers instead of a row.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.hub import liveness
from rankscope.hub.state import RunState
from rankscope.hub.state.columns import Flags, Integers

COLUMNS = (
    *("known", "host", "pid", "local_rank", "step", "microbatch", "phase", "process"),
    *("step_s", "tokens_per_s", "memory_peak_bytes", "dropped"),
    *("loss", "loss_step", "grad_norm", "grad_step", "grad_sharded"),
)
"""What a row is made of, beside ages, its link and what is kept for a few ranks only."""

SAME_S = 0.05
"""A phase is placed anew on the hub's clock with each message; that its beginning moved by less is
no news."""


class Told:
    """Goes on from look to look at one run's columns; costs no more than the rows that changed."""

    def __init__(self) -> None:
        self._state: RunState | None = None
        self._looked = 0
        self._seen: dict[str, NDArray[Any]] = {}
        self._special: set[int] = set()
        self._news: Integers = np.zeros(0, dtype=np.int64)

    def news(self, state: RunState, now_s: float) -> Integers:
        """For each rank the version by which its row had said something new last; shape (size,).

        Never before the row changed, and never after the version that ``state`` has now.
        """
        size, version = state.size(), state.version
        if state is not self._state or size != len(self._news) or version < self._looked:
            self._state = state
            self._news = np.full(size, version, dtype=np.int64)
            self._seen = {
                name: values.copy() for name, values in _columns(state, now_s, slice(0, size))
            }
        elif version > self._looked:
            at = np.flatnonzero(state.ranks.changed[:size] > self._looked)
            differs = state.ranks.over()[at]
            now = dict(_columns(state, now_s, at))
            for name, values in now.items():
                differs |= _differs(values, self._seen[name][at], name)
            for name, values in now.items():
                self._seen[name][at[differs]] = values[differs]
            self._news[at[differs]] = version
            special = {*state.words.probe_faults, *state.progress.expecting}
            for rank in special | self._special:
                if rank < size and state.ranks.changed[rank] > self._looked:
                    self._news[rank] = version
            self._special = special
        self._looked = version
        return self._news


def _columns(state: RunState, now_s: float, at: Any) -> list[tuple[str, NDArray[Any]]]:
    found = [(name, getattr(state.ranks, name)[at]) for name in COLUMNS]
    return [
        *found,
        ("phase_since_s", state.ranks.phase_since_s[at]),
        ("missed", state.sequences.missed[at]),
        ("link", liveness.links(state, now_s)[at]),
    ]


def _differs(now: NDArray[Any], before: NDArray[Any], name: str) -> Flags:
    differs: Flags = now != before
    if now.dtype.kind == "f":
        differs &= ~(np.isnan(now) & np.isnan(before))
        if name == "phase_since_s":
            differs &= ~(np.abs(now - before) < SAME_S)
    return differs
