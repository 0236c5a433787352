"""Equally long numpy arrays, one element a rank (or node), that grow and are saved together."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

MAX_SIZE = 1 << 15
"""Twice the largest world this is built for: about 40 MB of columns, and rows that fit a reply."""

MIN_GROWTH = 16


@dataclass(frozen=True)
class Field:
    """One column: numpy type, the value of an element nothing is known of, elements a row."""

    dtype: str
    fill: float
    width: int = 0

    def new(self, size: int) -> NDArray[Any]:
        shape = (size, self.width) if self.width else (size,)
        return np.full(shape, self.fill, dtype=self.dtype)


FLOAT = Field("f8", np.nan)
COUNT = Field("i8", 0)
INDEX = Field("i8", -1)
FLAG = Field("?", False)
CODE = Field("i1", 0)


class Columns:
    """Base: a subclass names its columns in ``FIELDS`` and annotates them as attributes.

    ``cells`` has the same memory as memoryviews, by the same names: reading or writing a single
    element costs half of what it costs through numpy, and gives plain ints and floats.
    """

    FIELDS: ClassVar[Mapping[str, Field]] = {}

    def __init__(self) -> None:
        self.size = 0
        self.cells: Any = SimpleNamespace()
        for name, field in self.FIELDS.items():
            self._set(name, field.new(0))

    def _set(self, name: str, column: Any) -> None:
        setattr(self, name, column)
        setattr(self.cells, name, memoryview(column))

    def reserve(self, size: int) -> None:
        """Make room for ``size`` elements, at most ``MAX_SIZE``; existing ones keep theirs."""
        size = min(size, MAX_SIZE)
        if size <= self.size:
            return
        # Ranks may turn up one by one: grow by half, not by one.
        self._resize(min(MAX_SIZE, max(size, self.size + self.size // 2, MIN_GROWTH)))

    def _resize(self, size: int) -> None:
        kept = min(size, self.size)
        for name, field in self.FIELDS.items():
            grown = field.new(size)
            grown[:kept] = getattr(self, name)[:kept]
            self._set(name, grown)
        self.size = size

    def clear(self, index: int | slice = slice(None)) -> None:
        """Forget what is known of one element, or of all."""
        for name, field in self.FIELDS.items():
            getattr(self, name)[index] = field.fill

    def dump(self) -> dict[str, Any]:
        """The columns as builtins; numbers are little-endian bytes."""
        saved: dict[str, Any] = {"size": self.size}
        for name, field in self.FIELDS.items():
            saved[name] = getattr(self, name).astype(_little(field)).tobytes()
        return saved

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take over what ``dump`` gave. A column it lacks keeps its fill.

        Raises ValueError when the bytes do not fit: a snapshot may come from a stranger's file.
        """
        size = saved.get("size")
        if not isinstance(size, int) or not 0 <= size <= MAX_SIZE:
            raise ValueError("columns without a size")
        self._resize(size)
        self.clear()
        for name, field in self.FIELDS.items():
            raw = saved.get(name)
            if raw is None:
                continue
            if not isinstance(raw, bytes):
                raise ValueError(f"column {name} is no bytes")
            column = getattr(self, name)
            values = np.frombuffer(raw, dtype=_little(field))
            if values.size != column.size:
                raise ValueError(f"column {name} has {values.size} values, not {column.size}")
            column[...] = values.reshape(column.shape)


def _little(field: Field) -> np.dtype[Any]:
    return np.dtype(field.dtype).newbyteorder("<")
