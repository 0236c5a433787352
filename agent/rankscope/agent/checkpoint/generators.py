"""The state of this rank's random number generators, as plain values."""

import random
import sys
from typing import Any

import torch


def state() -> dict[str, Any]:
    """Of Python, NumPy (where it is loaded), torch on the CPU and on each CUDA device in use."""
    found: dict[str, Any] = {"python": random.getstate(), "cpu": torch.get_rng_state()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state(legacy=True)
        found["numpy"] = [str(kind), torch.tensor(keys.tolist(), device="cpu"), *rest]
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        found["cuda"] = torch.cuda.get_rng_state(torch.cuda.current_device())
    return found


def restore(found: dict[str, Any]) -> None:
    """Put the generators back to what :func:`state` returned."""
    random.setstate(found["python"])
    torch.set_rng_state(found["cpu"])
    if "numpy" in found:
        import numpy

        kind, keys, position, has_gauss, cached = found["numpy"]
        words = numpy.array(keys.tolist(), dtype=numpy.uint32)
        numpy.random.set_state((kind, words, position, has_gauss, cached))
    if "cuda" in found and torch.cuda.is_available():
        torch.cuda.set_rng_state(found["cuda"], torch.cuda.current_device())
