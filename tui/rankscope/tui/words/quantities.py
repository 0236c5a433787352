"""Reading quantities as people write them: ``7B`` parameters, ``40GB``, ``512MiB``."""

import math
import re

_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_BYTES = {"": 1.0, "b": 1.0}
for _power, _prefix in enumerate("kmgtp", 1):
    _BYTES |= {_prefix: 1e3**_power, f"{_prefix}b": 1e3**_power, f"{_prefix}ib": 1024.0**_power}
_WRITTEN = re.compile(r"\s*([+-]?[0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_count(text: str) -> float:
    """``7e9``, ``7B``, ``350M``: a number with a decimal suffix. Raises ``ValueError``."""
    return _parse(text, _COUNTS, "a count such as 7e9, 7B or 350M")


def parse_bytes(text: str) -> float:
    """``40GB`` (decimal), ``40GiB`` (binary), ``4e9``. Raises ``ValueError``."""
    return _parse(text, _BYTES, "a size such as 40GB, 512MiB or 4e9")


def _parse(text: str, units: dict[str, float], what: str) -> float:
    match = _WRITTEN.fullmatch(text)
    unit = units.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ValueError(f"{text!r} is not {what}")
    try:
        value = float(match[1]) * unit
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not {what}")
    return value
