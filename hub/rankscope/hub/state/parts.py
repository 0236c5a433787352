"""Parts of the state that are one file each: what ranks or nodes said of one matter.

A new part is a file with a class like :class:`Part`, an attribute of ``RunState`` by the name it
has in ``PARTS``, and a line in the tables of handlers in ``run.py``. A snapshot of an older
version lacks it: it then begins empty.
"""

from typing import Any, Protocol

PARTS: tuple[str, ...] = (
    *("progress", "stacks", "operations", "setup", "memory", "paces", "gpus", "numerics"),
    *("saves", "lateness", "parity", "controls", "lives"),
)


class Part(Protocol):
    """What ``RunState`` and snapshots ask of a part. Nothing a message says may make it grow
    without bound."""

    def reserve(self, size: int) -> None:
        """There are now so many ranks."""

    def forget(self, rank: int) -> None:
        """The rank begins a new life in the same attempt."""

    def forget_all(self) -> None:
        """A new attempt begins."""

    def dump(self) -> Any:
        """All of it, as builtins."""

    def load(self, saved: Any) -> None:
        """Take over what ``dump`` gave.

        Raises ValueError, TypeError or KeyError for anything else.
        """
