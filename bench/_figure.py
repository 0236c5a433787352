"""What the benchmarks share: one JSON line a figure."""

import json
import os
from typing import Any


def figure(bench: str, value: float, unit: str, limit: float | None, **detail: Any) -> None:
    """Print one figure; ``limit`` is an upper bound on ``value``, or None."""
    line = {"bench": bench, "value": value, "unit": unit, "limit": limit, "detail": detail}
    print(json.dumps(line), flush=True)


def load() -> dict[str, float]:
    """The machine's load over the last minute: what a figure was measured beside."""
    return {"load_1min": round(os.getloadavg()[0], 2)}
