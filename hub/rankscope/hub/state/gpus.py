"""What the readings of each GPU have been like: since when it is throttled, how its errors count.

A reading alone does not tell: error counters are older than the run, and a moment at a power limit
is nothing.
"""

from typing import Any

import msgspec

from rankscope.protocol import messages as m

MAX_GPUS = 1 << 16

HARMFUL = frozenset(
    {
        *("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"),
        "reliability",
    }
)
"""Reasons that slow a GPU down against anybody's will. A power cap, application clocks and the like
are settings, and at full load the ordinary state of a data centre's GPU."""

BUSY_PERCENT = 90.0


class Watched(msgspec.Struct):
    """One GPU over the time of the run; times are on the hub's clock."""

    throttled_since_s: float | None = None
    free_since_s: float | None = None
    """Since when it has not been throttled."""
    reasons: list[str] = []
    busy_since_s: float | None = None
    ecc_first: int | None = None
    ecc_last: int | None = None
    ecc_at_s: float = 0.0
    """When the count rose last."""
    nvlink_first: int | None = None
    nvlink_last: int | None = None
    nvlink_at_s: float = 0.0


class GpuHistory:
    """By (host, index of the GPU); a part of the state."""

    def __init__(self) -> None:
        self.watched: dict[tuple[str, int], Watched] = {}

    def readings(self, host: str, gpus: tuple[m.GpuSample, ...], at_s: float) -> None:
        for gpu in gpus:
            key = (host, gpu.index)
            known = self.watched.get(key)
            if known is None:
                if len(self.watched) >= MAX_GPUS:
                    return
                known = self.watched[key] = Watched()
            _throttle(known, gpu, at_s)
            _errors(known, gpu, at_s)
            busy = (gpu.utilisation_percent or 0.0) >= BUSY_PERCENT
            known.busy_since_s = (known.busy_since_s or at_s) if busy else None

    # --- a part of the state ------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        pass

    def forget(self, rank: int) -> None:
        pass

    def forget_all(self) -> None:
        """GPUs outlive attempts."""

    def dump(self) -> Any:
        return [[host, index, msgspec.to_builtins(w)] for (host, index), w in self.watched.items()]

    def load(self, saved: Any) -> None:
        rows = msgspec.convert(saved, list[tuple[str, int, Watched]])
        self.watched = {(host, index): watched for host, index, watched in rows}


def _throttle(known: Watched, gpu: m.GpuSample, at_s: float) -> None:
    reasons = sorted(HARMFUL.intersection(gpu.throttle_reasons))
    if reasons:
        if known.throttled_since_s is None:
            known.throttled_since_s = at_s
        known.reasons, known.free_since_s = reasons, None
    elif known.throttled_since_s is not None and known.free_since_s is None:
        known.free_since_s = at_s


def _errors(known: Watched, gpu: m.GpuSample, at_s: float) -> None:
    if gpu.ecc_uncorrected is not None:
        if known.ecc_first is None or gpu.ecc_uncorrected < known.ecc_first:
            known.ecc_first = gpu.ecc_uncorrected  # the driver was loaded anew
        elif gpu.ecc_uncorrected > (known.ecc_last or 0):
            known.ecc_at_s = at_s
        known.ecc_last = gpu.ecc_uncorrected
    if gpu.nvlink_errors is not None:
        if known.nvlink_first is None or gpu.nvlink_errors < known.nvlink_first:
            known.nvlink_first = gpu.nvlink_errors
        elif gpu.nvlink_errors > (known.nvlink_last or 0):
            known.nvlink_at_s = at_s
        known.nvlink_last = gpu.nvlink_errors
