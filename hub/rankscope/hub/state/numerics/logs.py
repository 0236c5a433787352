"""Norms as 16-bit logarithms: small enough to keep 64 steps of 16,384 ranks, in memory and on disk.

A code is ``round(256 · ln(norm))``, exact to 0.2 %; four codes stand for what is no such number.
"""

import math

import numpy as np
from numpy.typing import NDArray

from rankscope.hub.state.columns import Field

UNKNOWN, ZERO = -32768, -32767
NAN, INF = 32767, 32766
STEPS_PER_UNIT = 256.0

CODE_RING = Field("i2", UNKNOWN, 64)

Codes = NDArray[np.int16]
Logs = NDArray[np.float32]


def encoded(norm: float) -> int:
    """The code of a norm."""
    if norm != norm:
        return NAN
    if norm == math.inf:
        return INF
    if norm <= 0.0:
        return ZERO
    return round(STEPS_PER_UNIT * math.log(norm))


def decoded(code: int) -> float | None:
    """The norm of a code; None where none is known."""
    if code == UNKNOWN:
        return None
    if code == ZERO:
        return 0.0
    if code == NAN:
        return math.nan
    if code == INF:
        return math.inf
    return math.exp(code / STEPS_PER_UNIT)


def logs(codes: Codes) -> Logs:
    """Natural logarithms, same shape; NaN where there is none: unknown, zero, not finite."""
    ordinary = (codes > ZERO) & (codes < INF)
    found: Logs = np.where(ordinary, codes.astype(np.float32) / np.float32(STEPS_PER_UNIT), np.nan)
    return found


def norms(codes: Codes) -> NDArray[np.float64]:
    """The norms, same shape; NaN where none is known or it is not finite."""
    values = np.exp(logs(codes).astype(np.float64))
    values[codes == ZERO] = 0.0
    return values
