"""A forked child (a DataLoader's worker, say) inherits hooks, sockets and locks, and no thread.

There everything of the agent is off: hooks do nothing, the sockets' memory is kept and never
touched (libzmq's threads did not come along, so closing would wait for ever), and the descriptor
of a lock is closed so that the lock ends with the parent.
"""

import os
from collections.abc import Callable

_watching = False
_kept: list[object] = []


def watch(in_child: Callable[[], None]) -> None:
    """Have ``in_child`` called in every child forked from now on; the first call counts."""
    global _watching
    if not _watching:
        _watching = True
        os.register_at_fork(after_in_child=in_child)


def keep(thing: object) -> None:
    """Never let ``thing`` be finalised in this process."""
    _kept.append(thing)
