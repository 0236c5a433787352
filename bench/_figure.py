"""What the benchmarks share: one JSON line a figure."""

import json
from typing import Any


def figure(bench: str, value: float, unit: str, limit: float | None, **detail: Any) -> None:
    """Print one figure; ``limit`` is an upper bound on ``value``, or None."""
    line = {"bench": bench, "value": value, "unit": unit, "limit": limit, "detail": detail}
    print(json.dumps(line), flush=True)
