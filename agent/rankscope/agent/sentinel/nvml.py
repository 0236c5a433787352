"""GPU readings through NVML, each guarded by itself: what a device does not report is None.

``pynvml`` (nvidia-ml-py) is handed in as a module, so that this file can be read and run where
there is none. Calls may block for as long as a sick driver likes: see ``gpuwatch``.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from rankscope.protocol import limits
from rankscope.protocol.messages import GpuSample

T = TypeVar("T")

THROTTLE_REASONS = {
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
"""``nvmlClocksEventReason*`` of nvml.h. Idle (0x001) is left out: an idle GPU is not throttled."""


class NoGpus(Exception):
    """There is nothing to read, and the text says why."""


@dataclass(frozen=True)
class Device:
    """One GPU: NVML's handle and what does not change."""

    index: int
    handle: Any
    name: str


def load() -> Any:
    """The pynvml module. Raises :class:`NoGpus` where it is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        raise NoGpus("none: nvidia-ml-py is not installed (pip install 'rankscope[gpu]')") from None


def open_devices(nvml: Any) -> list[Device]:
    """All GPUs of this machine. Raises :class:`NoGpus` with the reason when there are none."""
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        raise NoGpus(why_none(nvml, error)) from None
    if count == 0:
        raise NoGpus("none: the NVIDIA driver shows no GPU")
    devices = []
    for index in range(min(count, limits.MAX_GPUS_PER_NODE)):
        handle = guarded(nvml, partial(nvml.nvmlDeviceGetHandleByIndex, index))
        name = guarded(nvml, partial(nvml.nvmlDeviceGetName, handle))
        devices.append(Device(index, handle, _text(name or "unknown GPU")))
    return devices


def why_none(nvml: Any, error: Exception) -> str:
    """Why NVML does not work, in words."""
    code = getattr(error, "value", None)
    if code in (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED):
        return "none: no NVIDIA driver on this machine"
    if code == nvml.NVML_ERROR_NO_PERMISSION:
        return "none: this user may not talk to the NVIDIA driver (/dev/nvidiactl)"
    if code == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return "none: the NVIDIA library and kernel module differ in version; reload the driver"
    return f"none: NVML says {str(error)[:200]!r}"


def read(nvml: Any, device: Device) -> GpuSample:
    """One reading of ``device``. Raises nothing that NVML raises."""
    handle = device.handle
    memory = guarded(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    power_mw = guarded(nvml, lambda: nvml.nvmlDeviceGetPowerUsage(handle))
    return GpuSample(
        index=device.index,
        name=device.name[: limits.MAX_NAME_CHARS],
        utilisation_percent=guarded(
            nvml, lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        ),
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        temperature_c=guarded(
            nvml,
            lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        ),
        power_w=None if power_mw is None else power_mw / 1000.0,
        sm_clock_mhz=guarded(
            nvml, lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        ),
        throttle_reasons=throttle_names(guarded(nvml, lambda: _throttle_bits(nvml, handle)) or 0),
        ecc_uncorrected=guarded(
            nvml,
            lambda: int(
                nvml.nvmlDeviceGetTotalEccErrors(
                    handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
                )
            ),
        ),
        nvlink_errors=guarded(nvml, lambda: _nvlink_errors(nvml, handle)),
    )


def lost_note(nvml: Any, devices: list[Device]) -> str:
    """Words for GPUs that fell off the bus or need a reset; empty when all answer."""
    notes = []
    for device in devices:
        try:
            nvml.nvmlDeviceGetMemoryInfo(device.handle)
        except nvml.NVMLError as error:
            code = getattr(error, "value", None)
            if code == nvml.NVML_ERROR_GPU_IS_LOST:
                notes.append(f"GPU {device.index} is lost: it fell off the bus, reboot the node")
            elif code == nvml.NVML_ERROR_RESET_REQUIRED:
                notes.append(f"GPU {device.index} needs a reset: nvidia-smi -r -i {device.index}")
        except Exception:  # noqa: BLE001 - a driver's surprise is no reason to stop watching
            continue
    return "; ".join(notes)[: limits.MAX_TEXT_CHARS]


def throttle_names(bits: int) -> tuple[str, ...]:
    """The names of the reasons in ``bits``; bits that this version does not know are left out."""
    return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)


def guarded(nvml: Any, reading: Callable[[], T]) -> T | None:
    """``reading()``, or None when NVML, or this version of its binding, does not have it."""
    try:
        return reading()
    except nvml.NVMLError:
        return None
    except Exception:  # noqa: BLE001 - one odd reading must not take the others with it
        return None


def _throttle_bits(nvml: Any, handle: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except nvml.NVMLError as error:  # drivers before 535 know the older name only
        if getattr(error, "value", None) != nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _nvlink_errors(nvml: Any, handle: Any) -> int | None:
    """CRC, replay and recovery errors over all links; None when the device reports none of them."""
    fields = [
        nvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
        nvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
        nvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
        nvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
    ]
    values = nvml.nvmlDeviceGetFieldValues(handle, fields)
    known = [int(v.value.ullVal) for v in values if v.nvmlReturn == nvml.NVML_SUCCESS]
    return sum(known) if known else None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
