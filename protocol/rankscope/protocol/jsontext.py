"""JSON as rankscope prints it: non-finite numbers are the strings "nan", "inf" and "-inf"."""

import json
import math
from typing import Any

import msgspec


def to_jsonable(value: Any) -> Any:
    """``value`` (a shape, or builtins) as builtins that every JSON reader takes."""
    return _finite(msgspec.to_builtins(value))


def dumps(value: Any, indent: int | None = None) -> str:
    """One JSON document, keys in the shape's own order."""
    return json.dumps(to_jsonable(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
