"""Whether numbers in memory are finite, by their bytes. Pure; knows the standard library alone.

A number is not finite when all bits of its exponent are set. The byte with the sign and most of the
exponent is taken of all numbers of a block at once, and searched for values that have them set:
that is what nearly always is all. Only where one is found the other bytes are looked at, too.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

BLOCK_BYTES = 512 << 10
"""Looked at in one go: a few of them fit a core's own cache."""

NOT_LOOKED, FINITE, INF, NAN = "-", "0", "inf", "nan"
"""What is found."""

Strided = Callable[[int, int, int], bytes]
"""Each so many bytes (the third) of a stretch of memory, from the first to before the second."""


class Format(NamedTuple):
    """A floating-point type, little-endian: the bits of the exponent in its highest byte and in the
    one below. Beside them and the sign are bits of the mantissa."""

    size_bytes: int
    high: int
    low: int


FORMATS = {
    "float64": Format(8, 0x7F, 0xF0),
    "float32": Format(4, 0x7F, 0x80),
    "bfloat16": Format(2, 0x7F, 0x80),
    "float16": Format(2, 0x7C, 0x00),
    "float8_e5m2": Format(1, 0x7C, 0x00),
}
"""By torch's names. Types that have no Inf or no exponent like these are not looked at."""

FORMATS |= {
    "complex128": FORMATS["float64"],
    "complex64": FORMATS["float32"],
    "complex32": FORMATS["float16"],
}


@cache
def all_of(mask: int) -> bytes:
    """For ``translate``: 1 for the bytes in which all bits of ``mask`` are set, else 0."""
    return bytes(byte & mask == mask for byte in range(256))


@cache
def any_of(mask: int) -> bytes:
    """The same: 1 for the bytes in which one of them is."""
    return bytes(byte & mask != 0 for byte in range(256))


class Look:
    """At the numbers of type ``dtype`` of one tensor, block by block."""

    def __init__(self, strided: Strided, dtype: str) -> None:
        self._strided = strided
        self._format = FORMATS.get(dtype)
        self.found = FINITE if self._format else NOT_LOOKED

    def at(self, begin: int, end: int) -> None:
        """Look at what is from ``begin`` to ``end``, and holds no part of a number. Never raises:
        a save that there is no memory to look at is a save all the same."""
        of = self._format
        if of is None:
            return
        try:
            for start in range(begin, end, BLOCK_BYTES):
                if self.found != NAN:  # there is nothing more to find
                    self._block(of, start, min(end, start + BLOCK_BYTES))
        except Exception:  # noqa: BLE001
            self._format, self.found = None, NOT_LOOKED

    def _block(self, of: Format, begin: int, end: int) -> None:
        size = of.size_bytes
        high = self._strided(begin + size - 1, end, size)
        if not any(byte in high for byte, bad in enumerate(all_of(of.high)) if bad):
            return
        # From here on one bit of a long number for each: is its exponent all ones, its mantissa 0?
        bad = int.from_bytes(high.translate(all_of(of.high)))
        mantissa = int.from_bytes(high.translate(any_of(0x7F & ~of.high)))
        for below in range(2, size + 1):
            part = self._strided(begin + size - below, end, size)
            exponent = of.low if below == 2 else 0
            bad &= int.from_bytes(part.translate(all_of(exponent)))
            mantissa |= int.from_bytes(part.translate(any_of(0xFF & ~exponent)))
        if bad & mantissa:
            self.found = NAN
        elif bad:
            self.found = INF
