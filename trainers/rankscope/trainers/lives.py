"""One life of the ranks, agreed on through the launchers' store, which outlives them.

The store still holds where the ranks of earlier lives could be reached; a process group over it
would connect to what is gone. How often a launcher has restarted its ranks is no common number on
several nodes: each counts the failures of its own. So rank 0 of a new life makes up a name, all
others answer it with a word of their own, and who finds its word returned may go on: nobody can
take the name that the life before has left for its own. A launcher has ended its ranks before it
starts any anew, on all nodes, so that no rank of an earlier life answers the new name.
"""

import secrets
import time
from collections.abc import Iterator
from typing import Protocol

LEADER = "rankscope/life"

POLL_S, MAX_POLL_S = 0.02, 0.5
"""Between looks at the store: ever longer, for there may be thousands of ranks."""


class Store(Protocol):
    """What is needed of ``torch.distributed.Store``."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def check(self, keys: list[str], /) -> bool: ...


def agree(store: Store, rank: int, world_size: int, timeout_s: float) -> str:
    """The name of this life, the same on all ``world_size`` ranks and never used before.

    Raises TimeoutError when not all ranks have come within ``timeout_s``.
    """
    deadline_s = time.monotonic() + timeout_s
    begins = _lead(store, world_size) if rank == 0 else _follow(store, rank)
    pause_s = POLL_S
    for name in begins:
        if name:
            return name
        if time.monotonic() > deadline_s:
            break
        time.sleep(pause_s)
        pause_s = min(MAX_POLL_S, 1.5 * pause_s)
    raise TimeoutError(f"not all ranks came within {timeout_s:.0f} s")


def _lead(store: Store, world_size: int) -> Iterator[str]:
    """Rank 0: the life's name once all others have answered, nothing before."""
    name = secrets.token_hex(8)
    store.set(LEADER, name)
    others = range(1, world_size)
    while world_size > 1 and not store.check([_answer(name, rank) for rank in others]):
        yield ""
    for rank in others:
        store.set(_returned(name, rank), store.get(_answer(name, rank)).decode())
    yield name


def _follow(store: Store, rank: int) -> Iterator[str]:
    """Another rank: the same. It may first answer the rank 0 of the life before, for nothing."""
    word = secrets.token_hex(8)
    while True:
        name = store.get(LEADER).decode() if store.check([LEADER]) else ""
        returned = b""
        if name:
            store.set(_answer(name, rank), word)
            if store.check([_returned(name, rank)]):
                returned = store.get(_returned(name, rank))
        yield name if returned.decode() == word else ""


def _answer(name: str, rank: int) -> str:
    return f"{LEADER}/{name}/{rank}"


def _returned(name: str, rank: int) -> str:
    return f"{LEADER}/{name}/{rank}/returned"
