"""What the caller of ``attach`` gave, made fit for files and messages; never an error."""

import logging
from typing import Any

from rankscope.protocol import limits

log = logging.getLogger("rankscope")

MAX_START_STEP = 1 << 53
"""Every step up to here, and those after it, are exact in all number types on the way."""


def run_name(name: Any) -> str:
    """``name`` as text that can be written anywhere; empty when there is none."""
    if name is None:
        return ""
    try:
        text = str(name)
    except Exception:  # noqa: BLE001 - the caller's __str__
        return ""
    return text.encode("utf-8", "backslashreplace").decode()[: limits.MAX_NAME_CHARS]


def start_step(given: Any) -> int:
    """``given`` as a step number; 0, and one line that says so, when it is none."""
    try:
        step = int(given)
    except Exception:  # noqa: BLE001 - whatever it is, it is no number
        step = -1
    if 0 <= step <= MAX_START_STEP:
        return step
    log.warning("rankscope: start_step must be a step number, not %.40r: counting from 0", given)
    return 0
