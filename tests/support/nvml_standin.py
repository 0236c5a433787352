"""A stand-in for the module ``pynvml``, for machines without a GPU.

Also works as a file called ``pynvml.py`` on the path of another process. What it does is read anew
on each call from the JSON file that ``NVML_STANDIN`` names:

    {"init": "ok" | "no_driver" | "no_permission" | "mismatch" | "hang",
     "gpus": [{"name": …, reading: value | "unsupported" | "lost" | "hang", …}, …]}

``hang`` blocks until the file says something else, as a call into a sick driver does.
"""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NVML_SUCCESS = 0
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NO_PERMISSION = 4
NVML_ERROR_DRIVER_NOT_LOADED = 9
NVML_ERROR_LIBRARY_NOT_FOUND = 12
NVML_ERROR_FUNCTION_NOT_FOUND = 13
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_RESET_REQUIRED = 16
NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
NVML_ERROR_UNKNOWN = 999

NVML_TEMPERATURE_GPU = 0
NVML_CLOCK_SM = 1
NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
NVML_VOLATILE_ECC = 0
NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL = 38
NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL = 45
NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL = 52
NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL = 59

_TEXTS = {
    NVML_ERROR_NOT_SUPPORTED: "Not Supported",
    NVML_ERROR_NO_PERMISSION: "Insufficient Permissions",
    NVML_ERROR_LIBRARY_NOT_FOUND: "NVML Shared Library Not Found",
    NVML_ERROR_FUNCTION_NOT_FOUND: "Function Not Found",
    NVML_ERROR_GPU_IS_LOST: "GPU is lost",
    NVML_ERROR_RESET_REQUIRED: "GPU requires restart",
    NVML_ERROR_LIB_RM_VERSION_MISMATCH: "RM has detected an NVML/RM version mismatch.",
    NVML_ERROR_UNKNOWN: "Unknown Error",
}

_ERRORS = {
    "unsupported": NVML_ERROR_NOT_SUPPORTED,
    "no_function": NVML_ERROR_FUNCTION_NOT_FOUND,
    "lost": NVML_ERROR_GPU_IS_LOST,
    "reset": NVML_ERROR_RESET_REQUIRED,
    "unknown": NVML_ERROR_UNKNOWN,
    "no_driver": NVML_ERROR_LIBRARY_NOT_FOUND,
    "no_permission": NVML_ERROR_NO_PERMISSION,
    "mismatch": NVML_ERROR_LIB_RM_VERSION_MISMATCH,
}

H100: dict[str, Any] = {
    "name": "NVIDIA H100 80GB HBM3",
    "utilisation": 97,
    "memory": [41_200_000_000, 85_520_809_984],
    "temperature": 64,
    "power": 612_500,
    "clock": 1980,
    "event_reasons": 0x4 | 0x40,
    "throttle_reasons": 0x4 | 0x40,
    "ecc": 0,
    "nvlink": [1, 2, 3, 0],
}


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(_TEXTS.get(value, "Unknown Error"))
        self.value = value


class NVMLError_NotSupported(NVMLError):
    pass


def _scene() -> dict[str, Any]:
    scene: dict[str, Any] = json.loads(Path(os.environ["NVML_STANDIN"]).read_text())
    return scene


def _act(value: Any) -> Any:
    """``value``, or what it stands for."""
    if isinstance(value, str) and value in _ERRORS:
        code = _ERRORS[value]
        raise NVMLError_NotSupported(code) if value == "unsupported" else NVMLError(code)
    return value


def _reading(index: int, name: str) -> Any:
    while (value := _scene()["gpus"][index].get(name, "unsupported")) == "hang":
        time.sleep(0.02)
    return _act(value)


def nvmlInit() -> None:
    while (said := _scene().get("init", "ok")) == "hang":
        time.sleep(0.02)
    _act(said)


def nvmlShutdown() -> None:
    pass


def nvmlDeviceGetCount() -> int:
    return len(_scene()["gpus"])


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetName(handle: int) -> str:
    return str(_reading(handle, "name"))


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:
    return SimpleNamespace(gpu=_reading(handle, "utilisation"), memory=0)


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    used, total = _reading(handle, "memory")
    return SimpleNamespace(used=used, total=total, free=total - used)


def nvmlDeviceGetTemperature(handle: int, sensor: int) -> int:
    assert sensor == NVML_TEMPERATURE_GPU
    return int(_reading(handle, "temperature"))


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    return int(_reading(handle, "power"))


def nvmlDeviceGetClockInfo(handle: int, kind: int) -> int:
    assert kind == NVML_CLOCK_SM
    return int(_reading(handle, "clock"))


def nvmlDeviceGetCurrentClocksEventReasons(handle: int) -> int:
    return int(_reading(handle, "event_reasons"))


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: int) -> int:
    return int(_reading(handle, "throttle_reasons"))


def nvmlDeviceGetTotalEccErrors(handle: int, error: int, counter: int) -> int:
    assert (error, counter) == (NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC)
    return int(_reading(handle, "ecc"))


def nvmlDeviceGetFieldValues(handle: int, fields: list[int]) -> list[SimpleNamespace]:
    counts = _reading(handle, "nvlink")
    assert len(counts) == len(fields)
    return [
        SimpleNamespace(
            nvmlReturn=NVML_ERROR_NOT_SUPPORTED if count is None else NVML_SUCCESS,
            value=SimpleNamespace(ullVal=count or 0),
        )
        for count in counts
    ]
