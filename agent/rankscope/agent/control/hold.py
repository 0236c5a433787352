"""Ranks that stand at a boundary: until somebody resumes them, or a checkpoint is out.

That a hold begins was agreed on (:mod:`rankscope.agent.control.round`). That it ends need not be:
no rank has passed the boundary, so whoever goes on first waits for the others in the next step's
first collective, for as long as it takes them to look (less than a second). What happens meanwhile
is a row of entries in the store, each written once and by whoever comes first: requests that are
acted on where the ranks stand, and behind them why it is over. Every rank goes through all of them
in their order before it leaves, so all save the same, and all stop or none does. Each rank also
ends it by itself when its time is over, when the rank it looks after has fallen silent, or when the
store cannot be reached: a launcher can then take down what is left of the run, and what would have
raised raises.

A checkpoint and stop ends by rank 0's word alone, since it alone knows whether the checkpoint is
whole: all stop, or all go on.
"""

import collections
import threading
from collections.abc import Callable

import msgspec

from rankscope.agent.control.request import STOP as STOP_REQUEST
from rankscope.agent.control.request import Request, parse
from rankscope.agent.control.round import ASKED_PER_S, Store

LOOK_S = 0.5
PULSE_S = 2.0
"""Each rank says so often that it is there, and looks after the next one."""

SILENT_S = 15.0
"""A rank that has said nothing for so long is gone, or stopped: the others go on."""

STOP = "stop"
"""The word that ends a hold for good. Any other is why training goes on."""


class Hold:
    """Of one rank; ``lasts_s`` from ``now_s`` on, when it ends with the word ``expired``."""

    def __init__(
        self,
        prefix: str,
        rank: int,
        world_size: int,
        now_s: float,
        lasts_s: float,
        expired: str,
    ) -> None:
        self.since_s = now_s
        self.until_s = now_s + lasts_s
        self.lasts_s = lasts_s
        self.word = ""
        """Why it is over; empty while it is not."""
        self.over = threading.Event()
        self.news = threading.Event()
        """Set when it is over, and when there is something in ``asked``."""
        self.want: Request | None = None
        """What somebody wants to be done while the ranks stand here."""
        self.taken: list[Request] = []
        """What is done here, on all ranks; in the order of all of them."""
        self.asked: collections.deque[Request] = collections.deque()
        """Of that the saves that the training thread has not made yet."""
        self.conclude: Callable[[], str] | None = None
        """Of the rank whose word it is: the word that ends it, empty while it goes on."""
        self._expired = expired
        self._prefix, self._rank, self._world_size = prefix, rank, world_size
        self._proposal = ""
        self._beats = 0
        self._said_s = -1e18
        self._looked_s = now_s
        self._entries = 0
        self._seen: tuple[bytes, float] = b"", now_s
        self._answered_s = now_s

    def end(self, why: str) -> None:
        """Somebody wants it to end. From any thread."""
        self._proposal = self._proposal or why

    def step(self, store: Store, now_s: float) -> float | None:
        """Do what is next; returns in how many seconds to come again, None when it is over."""
        if self.word:
            return None
        while self._entry(store, now_s) and not self.over.is_set():
            pass
        self._answered_s = now_s
        spread_s = self._world_size / ASKED_PER_S
        look_s = max(LOOK_S / 5 if self.conclude else LOOK_S, spread_s)
        return None if self.over.is_set() else min(look_s, max(0.0, self.until_s - now_s))

    def _entry(self, store: Store, now_s: float) -> bool:
        """Take the next entry, or write it; whether there was one."""
        proposal = self._proposal_for(store, now_s)
        key = f"{self._prefix}/hold/{self._entries}"
        if proposal:
            self._take(store.compare_set(key, "", proposal).decode())
        elif store.check([key]):
            self._take(store.get(key).decode())
        else:
            return False
        return True

    def _proposal_for(self, store: Store, now_s: float) -> str:
        if self.want is not None:
            return self.want.text()
        proposal = self._proposal or (self.conclude() if self.conclude is not None else "")
        if not proposal and now_s >= self.until_s:
            proposal = self._expired
        if not proposal and now_s - self._said_s >= PULSE_S:
            self._said_s = now_s
            proposal = self._look_after(store, now_s)
        return proposal

    def _take(self, entry: str) -> None:
        self._entries += 1
        request = request_in(entry)
        if request is None:
            self._end(entry)
            return
        if self.want is not None and self.want.number == request.number:
            self.want = None
        self.taken.append(request)
        if request.command == STOP_REQUEST:
            self._end(STOP)
        else:
            self.asked.append(request)
            self.news.set()

    def fail(self, error: Exception, now_s: float) -> bool:
        """The store has failed. Whether the hold is over for that, or because it was to end."""
        if self._proposal and self._proposal != STOP:
            self._end(self._proposal)
        elif now_s - self._answered_s >= SILENT_S:
            self._end(f"torch's store cannot be reached: {type(error).__name__}")
        return bool(self.word)

    def _look_after(self, store: Store, now_s: float) -> str:
        """Say that this rank is there; returns who is not, in words."""
        self._beats += 1
        if now_s - self._looked_s > 3 * PULSE_S:
            self._seen = self._seen[0], now_s  # this process was stopped, perhaps with all others
        self._looked_s = now_s
        store.set(self._key(f"pulse/{self._rank}"), str(self._beats))
        other = (self._rank + 1) % self._world_size
        if other == self._rank:
            return ""
        key = self._key(f"pulse/{other}")
        pulse = store.get(key) if store.check([key]) else b""
        known, since_s = self._seen
        if pulse != known:
            self._seen = pulse, now_s
        elif now_s - since_s > SILENT_S:
            return f"rank {other} has said nothing for {now_s - since_s:.0f} s"
        return ""

    def _end(self, word: str) -> None:
        self.word = word
        self.over.set()
        self.news.set()

    def _key(self, name: str) -> str:
        return f"{self._prefix}/hold/{name}"


def request_in(entry: str) -> Request | None:
    """The request that an entry is of; None where it is the word that ends the hold."""
    try:
        return parse(entry.encode())
    except msgspec.MsgspecError:
        return None


def end_for_all(store: Store, prefix: str, word: str) -> None:
    """End a hold that this rank does not take part in."""
    entries = 0
    while request_in(store.compare_set(f"{prefix}/hold/{entries}", "", word).decode()) is not None:
        entries += 1
