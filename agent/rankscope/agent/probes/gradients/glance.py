"""A glance at a large gradient that is left out in a step: a 64th of it, by turns another.

A gradient may be left out in the very step in which it is ten thousand times too large, or NaN in
many places. A part tells that for a small part of the cost, and then all of it is read: the part
decides only whether to read, never what is said. One NaN alone in a large gradient is seen by one
glance in 64; what it spoils shows it in the next step.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from rankscope.agent.probes.gradients import measure

PARTS: Final = 64

RUNS: Final = 4
"""A part lies in so many places, apart from each other. Single rows all over the gradient would say
more of it, and take as long as reading a third of all: torch adds up what lies apart one by one."""

FACTOR: Final = 10.0
"""By so much a part has to promise more than the whole last had."""


def estimates(gradients: Sequence[torch.Tensor], turn: int) -> list[float]:
    """The L2 norm of each of ``gradients`` (dense, on a CPU, not empty) as one part of it has it.

    All in one go: with cold caches the calls take longer than what they read.
    """
    kinds = {gradient.dtype for gradient in gradients}
    with torch.no_grad():
        parts = [part(gradient, turn) for gradient in gradients]
        if len(kinds) == 1:
            norms = torch._foreach_norm(parts, 2, dtype=measure.WIDER.get(kinds.pop()))
            values: list[float] = torch.stack(norms).tolist()
        else:
            values = [measure.norm(one).item() for one in parts]
    return [
        norm * math.sqrt(gradient.numel() / one.numel())
        for norm, gradient, one in zip(values, gradients, parts, strict=True)
    ]


def part(gradient: torch.Tensor, turn: int) -> torch.Tensor:
    """A view of about a 64th: a run of rows in each of ``RUNS`` stretches where it has rows enough,
    else single rows, one of them, or a run of elements.
    """
    rows = gradient.shape[0]
    if gradient.dim() == 1:
        run = max(1, rows // PARTS)
        begin = turn % PARTS * run % rows
        return gradient[begin : begin + run]
    if rows < PARTS:
        return gradient[turn % rows]
    if rows < PARTS * RUNS:
        return gradient[turn % PARTS :: PARTS]
    begin, size, apart = runs(rows, turn)
    stride = gradient.stride()
    return gradient.as_strided(
        (RUNS, size, *gradient.shape[1:]),
        (apart * stride[0], *stride),
        gradient.storage_offset() + begin * stride[0],
    )


def runs(rows: int, turn: int) -> tuple[int, int, int]:
    """The row at which the first run begins, its size, and how far apart runs begin.

    Those of ``2 * PARTS`` turns are all rows: what is too much for equal stretches is left out at
    the end and at the beginning in turn.
    """
    apart = rows // RUNS
    size = -(-apart // PARTS)
    begin = min(turn % PARTS * size, apart - size)
    return begin + (rows - apart * RUNS if turn // PARTS % 2 else 0), size, apart


class Glances:
    """Which gradients strike, by parameter's index."""

    def __init__(self) -> None:
        self._promised: dict[int, float] = {}

    def strikes(
        self,
        indices: Sequence[int],
        gradients: Sequence[Any],
        number: int,
        usual: Mapping[int, float],
    ) -> set[int]:
        """Those of ``indices`` whose gradient is to be read in step ``number``. ``usual``: norms
        when last read.

        One that promised much and held little has to promise more the next time.
        """
        known = [
            (index, gradient)
            for index, gradient in zip(indices, gradients, strict=True)
            if index in usual and gradient.is_cpu and not gradient.is_sparse and gradient.numel()
        ]
        if not known:
            return set()
        struck: set[int] = set()
        promises = estimates([gradient for _, gradient in known], number)
        for (index, _), promised in zip(known, promises, strict=True):
            # Not NaN's way round: what is no number strikes.
            if promised <= FACTOR * max(usual[index], self._promised.get(index, 0.0)):
                continue
            struck.add(index)
            if math.isfinite(promised):
                self._promised[index] = promised
        return struck

    def read(self) -> None:
        """All gradients of a step were read: what they are now is what counts."""
        self._promised.clear()
