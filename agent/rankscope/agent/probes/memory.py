"""Memory: CUDA's allocator statistics (no synchronisation), and the process's resident set."""

import resource
import sys
from pathlib import Path
from typing import Any, ClassVar

import torch

from rankscope.agent.probes.base import Probe
from rankscope.protocol.messages import Memory


class MemoryProbe(Probe):
    """Read by the sending thread; of the device only after the training thread has used it."""

    name: ClassVar[str] = "memory"
    guarded: ClassVar[tuple[str, ...]] = ("read",)

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._total_bytes: int | None = None

    def read(self) -> Memory:
        resident, peak = resident_bytes()
        device = self.observer.device
        cuda: Any = torch.cuda
        if device is None or device.type != "cuda" or not cuda.is_initialized():
            return Memory(None, None, None, None, None, resident, peak)
        stats: dict[str, Any] = torch.cuda.memory_stats(device)
        if self._total_bytes is None:
            self._total_bytes = int(torch.cuda.get_device_properties(device).total_memory)
        return Memory(
            allocated_bytes=int(stats.get("allocated_bytes.all.current", 0)),
            reserved_bytes=int(stats.get("reserved_bytes.all.current", 0)),
            peak_allocated_bytes=int(stats.get("allocated_bytes.all.peak", 0)),
            peak_reserved_bytes=int(stats.get("reserved_bytes.all.peak", 0)),
            device_total_bytes=self._total_bytes,
            resident_bytes=resident,
            peak_resident_bytes=peak,
        )


def resident_bytes() -> tuple[int, int]:
    """(now, peak) of this process: VmRSS and VmHWM, or ``getrusage`` where there is no /proc."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        return peak, peak
    found = {"VmRSS": 0, "VmHWM": 0}
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name in found:
            found[name] = int(value.split()[0]) * 1024  # "   123456 kB"
    return found["VmRSS"], max(found.values())
