"""torch's own store, as the ranks of a run share it."""

import time
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import HashStore  # torch.distributed's own, but not exported
from torch.distributed.distributed_c10d import _get_default_store

from rankscope.agent import storereach
from rankscope.protocol.exits import Exit, UserError

REPLY_S = 30.0
"""The longest that one question to the store may take."""

RESUME_S = 1800.0
"""The longest that ranks wait for each other when a checkpoint is read."""


def shared() -> Any:
    """A connection of our own to the store of the default process group.

    Its users are threads of ours; that of the group, which training uses, would make training wait.
    Raises ``ConnectionError`` where nobody listens for it any more.
    """
    store: Any = _get_default_store()
    storereach.check(store)
    store = store.clone()
    store.set_timeout(timedelta(seconds=REPLY_S))
    return store


def alone() -> Any:
    """The store of a process that is alone."""
    return HashStore()


class Circle:
    """Ranks that tell each other something, all of them in the same order."""

    def __init__(self, store: Any, prefix: str, rank: int, world_size: int) -> None:
        self._store, self._prefix = store, prefix
        self.rank, self.world_size = rank, world_size
        self._rounds = 0

    def tell(self, text: str) -> list[str]:
        """What each rank tells, in the order of ranks. Raises :class:`UserError` after a while."""
        self._rounds += 1
        keys = [f"{self._prefix}/{self._rounds}/{rank}" for rank in range(self.world_size)]
        self._store.set(keys[self.rank], text.encode())
        deadline_s = time.monotonic() + RESUME_S
        pause_s = 0.005
        while not self._store.check(keys):
            if time.monotonic() > deadline_s:
                missing = [n for n, key in enumerate(keys) if not self._store.check([key])]
                raise UserError(f"ranks {missing} did not take part in resuming", Exit.TIMED_OUT)
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.1)
        return [found.decode() for found in self._store.multi_get(keys)]

    def hear(self, text: str) -> str:
        """What rank 0 tells."""
        return self.tell(text if self.rank == 0 else "")[0]
