"""Whether NVML reads this machine's GPUs."""

from rankscope.tui.doctor.check import Check


def gpus() -> list[Check]:
    """One finding: which GPUs there are, or why there are no readings."""
    try:
        import pynvml
    except ImportError:
        return []  # its absence is told among the libraries
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [
            Check(
                "GPU",
                works=False,
                essential=False,
                says=f"none: {error}",
                do="nothing to do on a machine without NVIDIA GPUs; else install the driver",
            )
        ]
    try:
        names = [
            _text(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index)))
            for index in range(pynvml.nvmlDeviceGetCount())
        ]
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()
    says = f"{len(names)} × {names[0]}" if names else "none"
    return [Check("GPU", bool(names), f"{says}, driver {driver}", essential=False)]


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
