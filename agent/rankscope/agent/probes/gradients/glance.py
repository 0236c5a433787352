"""A glance at a large gradient that is left out in a step: a 32nd of it, by turns another.

A gradient may be left out in the very step in which it is ten thousand times too large, or NaN in
many places. A part tells that for a small part of the cost, and then all of it is read: the part
decides only whether to read, never what is said. One NaN alone in a large gradient is seen by one
glance in 32; what it spoils shows it in the next step.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import torch

from rankscope.agent.probes.gradients import measure

PARTS: Final = 32

RUNS: Final = 4
"""A part lies in so many places, apart from each other. Single rows all over the gradient would say
more of it, and take as long as reading a third of all: torch adds up what lies apart one by one."""

FACTOR: Final = 10.0
"""By so much a part has to promise more than the whole last had."""


def estimate(gradient: torch.Tensor, turn: int) -> float:
    """The L2 norm of ``gradient`` (dense, on a CPU, not empty) as one part of it has it.

    Some runs of rows where it has rows enough, else one row, or one run of elements.
    """
    rows = gradient.shape[0]
    if gradient.dim() == 1:
        run = max(1, rows // PARTS)
        begin = turn % PARTS * run % rows
        parts = [gradient[begin : begin + run]]
    elif rows >= PARTS * RUNS:
        parts = [gradient[begin:end] for begin, end in runs(rows, turn)]
    elif rows >= PARTS:
        parts = [gradient[turn % PARTS :: PARTS]]
    else:
        parts = [gradient[turn % rows]]
    with torch.no_grad():
        norms = torch._foreach_norm(parts, 2, dtype=measure.WIDER.get(gradient.dtype))
    norm = measure.total([one.item() for one in norms])
    return norm * math.sqrt(gradient.numel() / sum(part.numel() for part in parts))


def runs(rows: int, turn: int) -> list[tuple[int, int]]:
    """The rows at which a part begins and ends, once in each of ``RUNS`` stretches.

    Those of ``PARTS`` turns are all rows.
    """
    found = []
    for run in range(RUNS):
        first, after = rows * run // RUNS, rows * (run + 1) // RUNS
        size = -(-(after - first) // PARTS)
        begin = min(first + turn % PARTS * size, after - size)
        found.append((begin, begin + size))
    return found


class Glances:
    """Which gradients strike, by parameter's index."""

    def __init__(self) -> None:
        self._promised: dict[int, float] = {}

    def strikes(self, index: int, gradient: Any, number: int, usual: Mapping[int, float]) -> bool:
        """Whether all of it is to be read in step ``number``. ``usual``: norms when last read.

        One that promised much and held little has to promise more the next time.
        """
        known = usual.get(index)
        if known is None or not gradient.is_cpu or gradient.is_sparse or not gradient.numel():
            return False
        promised = estimate(gradient, number)
        if promised <= FACTOR * max(known, self._promised.get(index, 0.0)):
            return False
        if math.isfinite(promised):
            self._promised[index] = promised
        return True

    def read(self) -> None:
        """All gradients of a step were read: what they are now is what counts."""
        self._promised.clear()
