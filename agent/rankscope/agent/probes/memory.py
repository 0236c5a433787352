"""Memory: CUDA's allocator statistics (no synchronisation), and the process's own from /proc."""

import resource
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import torch

from rankscope.agent import kernelfiles
from rankscope.agent.probes.base import Probe
from rankscope.protocol.messages import Memory

PAGE_BYTES = resource.getpagesize()
STATM = Path("/proc/self/statm")
STATUS = Path("/proc/self/status")

SLOW_EVERY_S = 0.5
"""The allocator's statistics take ten times as long to read as the rest."""

PEAK_EVERY_S = 2.0
"""So does the peak, which what is read more often is nearly always the same as."""


class MemoryProbe(Probe):
    """Read by the sending thread; of the device only after the training thread has used it."""

    name: ClassVar[str] = "memory"
    guarded: ClassVar[tuple[str, ...]] = ("read",)

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._total_bytes: int | None = None
        self._stats: dict[str, Any] = {}
        self._peak_bytes = 0
        self._slow_s = self._looked_s = -1e9

    def read(self) -> Memory:
        """What is taken now."""
        now = time.monotonic()
        if now - self._slow_s >= SLOW_EVERY_S:
            self._slow_s = now
            self._look_at_device()
        if now - self._looked_s >= PEAK_EVERY_S:
            self._looked_s = now
            self._peak_bytes = max(peak_resident_bytes(), self._peak_bytes)
        address, resident, anonymous = process_bytes()
        self._peak_bytes = max(resident, self._peak_bytes)
        limit = limit_bytes()
        known = self._stats.get
        return Memory(
            allocated_bytes=known("allocated_bytes.all.current"),
            reserved_bytes=known("reserved_bytes.all.current"),
            peak_allocated_bytes=known("allocated_bytes.all.peak"),
            peak_reserved_bytes=known("reserved_bytes.all.peak"),
            device_total_bytes=self._total_bytes,
            resident_bytes=resident,
            peak_resident_bytes=self._peak_bytes,
            anonymous_bytes=anonymous,
            limit_bytes=limit,
            limited_bytes=None if limit is None else address,
            state_bytes=self.observer.state.bytes,
        )

    def _look_at_device(self) -> None:
        device = self.observer.device
        cuda: Any = torch.cuda
        if device is None or device.type != "cuda" or not cuda.is_initialized():
            return
        if self._total_bytes is None:
            self._total_bytes = int(cuda.get_device_properties(device).total_memory)
        self._stats = cuda.memory_stats(device)


def process_bytes() -> tuple[int | None, int, int | None]:
    """(address space, resident, resident and anonymous) of this process, from ``statm`` of proc(5).

    Where there is no /proc the peak stands for the resident set.
    """
    try:
        pages = [int(field) for field in kernelfiles.read(STATM).split()[:3]]
    except (OSError, ValueError):
        return None, peak_resident_bytes(), None
    address, resident, shared = (page * PAGE_BYTES for page in pages)
    return address, resident, max(0, resident - shared)


def peak_resident_bytes() -> int:
    """VmHWM; ``getrusage`` where there is no /proc, for it also has what came before an exec."""
    try:
        lines = kernelfiles.read(STATUS).splitlines()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    peaks = (int(line.split()[1]) * 1024 for line in lines if line.startswith(b"VmHWM:"))
    return next(peaks, 0)


def limit_bytes() -> int | None:
    """The limit on the address space; None where there is none."""
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if soft == resource.RLIM_INFINITY else soft
