"""A glance at a large gradient that is left out in a step: a 256th of it, by turns another.

A gradient may be left out in the very step in which it is ten thousand times too large, or NaN
everywhere. A part tells that for a small part of the cost, and then all of it is read: the part
decides only whether to read, never what is said. One NaN alone in a large gradient is seen by one
glance in 256; what it spoils shows it in the next step.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

PARTS: Final = 256

FACTOR: Final = 10.0
"""By so much a part has to promise more than the whole last had."""

Part = tuple[int, torch.Tensor, torch.Tensor]
"""A parameter's index, its gradient, and a part of that."""


def part(gradient: torch.Tensor, turn: int) -> torch.Tensor:
    """A view of a part of ``gradient`` (dense, not empty): a run of rows, or of one row.

    The run is one, made by the cheapest call there is. Of several that lie apart from each other
    more could be told, and they cost four times as much, with cold caches.
    """
    rows = gradient.shape[0]
    if rows >= PARTS:
        return _run(gradient, rows, turn)
    row = gradient[turn % rows]
    length = row.shape[0] if row.dim() else 0
    return _run(row, length, turn // rows) if length > PARTS and row.numel() > PARTS**2 else row


def _run(tensor: torch.Tensor, rows: int, turn: int) -> torch.Tensor:
    """Of ``rows`` rows as many as make a part; those of all turns are all rows."""
    size = -(-rows // PARTS)
    begin = turn % -(-rows // size) * size
    return tensor.narrow(0, min(begin, rows - size), size)


def promised(glanced: Part, norm: float) -> float:
    """The L2 norm of a gradient, as a part's ``norm`` has it."""
    _, gradient, piece = glanced
    return norm * math.sqrt(gradient.numel() / piece.numel())


class Glances:
    """Which gradients strike, by parameter's index."""

    def __init__(self) -> None:
        self._promised: dict[int, float] = {}

    def at(
        self,
        indices: Sequence[int],
        gradients: Sequence[Any],
        number: int,
        usual: Mapping[int, float],
    ) -> list[Part]:
        """The parts to look at in step ``number``. ``usual``: norms when last read; of what never
        was, nothing can be told."""
        return [
            (index, gradient, part(gradient, number))
            for index, gradient in zip(indices, gradients, strict=True)
            if index in usual and gradient.is_cpu and not gradient.is_sparse and gradient.numel()
        ]

    def strike(
        self, glanced: Sequence[Part], norms: Sequence[float], usual: Mapping[int, float]
    ) -> set[int]:
        """Those whose gradient is to be read. ``norms``: of their parts.

        One that promised much and held little has to promise more the next time.
        """
        struck: set[int] = set()
        for one, norm in zip(glanced, norms, strict=True):
            index, promise = one[0], promised(one, norm)
            # Not NaN's way round: what is no number strikes.
            if promise <= FACTOR * max(usual[index], self._promised.get(index, 0.0)):
                continue
            struck.add(index)
            if math.isfinite(promise):
                self._promised[index] = promise
        return struck

    def read(self) -> None:
        """All gradients of a step were read: what they are now is what counts."""
        self._promised.clear()
