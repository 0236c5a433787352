"""How the ranks agree on the boundary at which a request is acted on.

No collective and nothing at all at ordinary boundaries: the ranks' threads talk through torch's
store, and only while there is a request. First each says that it has heard of the request; until
all have, nothing happens. Then each *holds*: its training thread will not pass the next boundary
without knowing the decision. Only then it tells the number of that next boundary. The largest
number told is the decision. No rank can have passed it, because none passes a boundary that it has
told before it knows the decision, and all come to the same, because all see the same numbers.

Holding ends after ``HOLD_S`` whatever happens, and is entered only when every rank is known to be
there, so it takes as long as a few questions to the store.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

HOLD_S = 2.0
"""The longest that a training thread is held up, once for each request."""

FAST_S, SLOW_S = 0.005, 0.25
"""Between two questions to the store: when training may be held up meanwhile, and when not."""

ASKED_PER_S = 50_000
"""So many questions of all ranks together a store can answer; a large world asks seldomer."""

GIVEN_UP = -1


class Round(threading.Thread):
    """One request on one rank. ``completed`` counts its boundaries, ``deadline_s`` is monotonic."""

    def __init__(
        self,
        request: int,
        rank: int,
        world_size: int,
        store: Callable[[], Any],
        prefix: str,
        completed: Callable[[], int],
        deadline_s: float,
    ) -> None:
        super().__init__(name="rankscope-control", daemon=True)
        self.request = request
        self.holding = False
        self.text = "asked for"
        """How far the agreement is, in words."""
        self._rank, self._world_size = rank, world_size
        self._store, self._prefix = store, prefix
        self._completed = completed
        self._deadline_s = deadline_s
        self._decided = threading.Event()
        self._lock = threading.Lock()
        self._boundary = GIVEN_UP

    # the training thread

    def boundary(self, hold_s: float = HOLD_S) -> int | None:
        """The boundary that was agreed on; None while there is nothing to wait for, and
        ``GIVEN_UP`` when there will be none."""
        if not self.holding and not self._decided.is_set():
            return None
        if not self._decided.wait(hold_s):
            self._give_up("the ranks did not agree in time")
        return self._boundary

    # its own thread

    def run(self) -> None:
        try:
            self._agree()
        except Exception as error:  # noqa: BLE001 - a request that fails must not fail the run
            self._give_up(f"torch's store: {type(error).__name__}")

    def _agree(self) -> None:
        store = self._store()
        self.text = "waiting for all ranks to hear of it"
        store.set(self._key(f"aware/{self._rank}"), b"1")
        if not self._meet(store, "aware", self._deadline_s, SLOW_S):
            self._give_up(self._absent(store))
            return
        # Those that look seldom have to notice, too, before anybody holds.
        if not self._meet(store, "ready", self._deadline_s, FAST_S):
            self._give_up("a rank that had heard of it fell silent")
            return
        until_s = time.monotonic() + HOLD_S
        self.holding = True  # before the count is read: see above
        store.set(self._key(f"next/{self._rank}"), b"%d" % (self._completed() + 1))
        if self._rank != 0:
            store.add(self._key("told"), 1)
            decided = self._until(lambda: store.check([self._key("decision")]), until_s, FAST_S)
        else:
            decided = self._meet(store, "told", until_s, FAST_S)
            if decided:
                keys = [self._key(f"next/{rank}") for rank in range(self._world_size)]
                boundary = max(int(found) for found in store.multi_get(keys))
                store.set(self._key("decision"), b"%d" % boundary)
        if not decided:
            self._give_up("the ranks did not agree in time")
            return
        boundary = int(store.get(self._key("decision")))
        self._decide(boundary, f"agreed: after step {boundary}")

    def _meet(self, store: Any, what: str, until_s: float, longest_s: float) -> bool:
        """Whether all ranks have come to ``what`` before ``until_s``."""
        store.add(self._key(what), 1)
        everyone = self._world_size
        return self._until(lambda: store.add(self._key(what), 0) >= everyone, until_s, longest_s)

    def _until(self, there: Callable[[], bool], until_s: float, longest_s: float) -> bool:
        spread_s = self._world_size / ASKED_PER_S
        pause_s = max(FAST_S, spread_s)
        while not there():
            if time.monotonic() > until_s or self._decided.is_set():
                return False
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.3, max(longest_s, spread_s))
        return True

    def _absent(self, store: Any) -> str:
        ranks = range(min(self._world_size, 64))
        absent = [str(r) for r in ranks if not store.check([self._key(f"aware/{r}")])]
        return f"rank {', '.join(absent) or '?'} did not hear of it"

    def _decide(self, boundary: int, text: str) -> None:
        with self._lock:
            if not self._decided.is_set():
                self._boundary, self.text = boundary, text
                self._decided.set()

    def _give_up(self, why: str) -> None:
        self._decide(GIVEN_UP, f"given up: {why}")

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{self.request}/{name}"
