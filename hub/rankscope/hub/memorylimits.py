"""What a rank may use, and how much of it is left: its device, its process's limit, its node."""

from typing import NamedTuple

from rankscope.hub.state import RunState
from rankscope.protocol import messages as m


class Room(NamedTuple):
    """One limit."""

    what: str
    """``GPU memory``, ``address space (ulimit -v)`` or ``memory of node-a``."""
    limit_bytes: int | None
    """None where only what is left is known."""
    left_bytes: int
    shared: bool
    """Other ranks take of it, too."""


def rooms(state: RunState, rank: int) -> list[Room]:
    """Every limit known of the rank."""
    memory = state.words.memory.get(rank)
    found = [] if memory is None else _of_process(memory)
    if memory is not None and memory.device_total_bytes is not None:
        return found  # host memory is not what its training takes
    sentinel = state.nodes.by_host.get(state.host(rank))
    if sentinel is not None and sentinel.memory_available_bytes is not None:
        found.append(
            Room(
                f"memory of {sentinel.host}",
                sentinel.memory_limit_bytes,
                sentinel.memory_available_bytes,
                shared=True,
            )
        )
    return found


def _of_process(memory: m.Memory) -> list[Room]:
    found = []
    total = memory.device_total_bytes
    if total is not None and memory.peak_allocated_bytes is not None:
        left = max(0, total - memory.peak_allocated_bytes)
        return [Room("GPU memory", total, left, shared=False)]
    if memory.limit_bytes is not None and memory.limited_bytes is not None:
        left = max(0, memory.limit_bytes - memory.limited_bytes)
        found.append(Room("address space (ulimit -v)", memory.limit_bytes, left, shared=False))
    return found


def limit_bytes(state: RunState, rank: int) -> int | None:
    """The limit with the least room left that is known as a number."""
    known = [room for room in rooms(state, rank) if room.limit_bytes is not None]
    return min(known, key=lambda room: room.left_bytes).limit_bytes if known else None
