"""The rank's memory grows and grows."""

import resource
from pathlib import Path

import torch
from torch import Tensor

from rankscope.trainers.faults.hit import Hit

MIB = 1 << 20
GROWTH_BYTES = 4 * MIB
MOST_GROWTH_BYTES = 2048 * MIB
"""Where a fault that was left alone stops, to spare the machine."""
FAST_GROWTH_BYTES = 16 * MIB
ROOM_BYTES = 512 * MIB
FILLS = 0.95
"""So much of the room is used: running out is near and does not happen."""


def memory_growth(hit: Hit) -> None:
    grow(hit, GROWTH_BYTES, MOST_GROWTH_BYTES)


def memory_limit(hit: Hit) -> None:
    """A limit on the rank's address space, as ``ulimit -v`` sets it, comes nearer step by step."""
    if hit.here:
        hit.site.points.once("begin", hit.spec.step, lambda: limit(ROOM_BYTES))
    grow(hit, FAST_GROWTH_BYTES, int(ROOM_BYTES * FILLS))


def limit(room_bytes: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + room_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def grow(hit: Hit, step_bytes: int, most_bytes: int) -> None:
    """Keep ``step_bytes`` more after every step from that of the fault on."""
    kept: list[Tensor] = []
    points = hit.site.points

    def strike() -> None:
        if points.step >= hit.spec.step and (len(kept) + 1) * step_bytes <= most_bytes:
            kept.append(torch.ones(step_bytes, dtype=torch.uint8))

    if hit.here:
        points.once("begin", hit.spec.step, hit.tell)
        points.on("optimizer", strike)
