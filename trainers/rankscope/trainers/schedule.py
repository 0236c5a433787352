"""The learning rate of each update."""

import math

from torch.optim import Optimizer

FLOOR = 0.1
"""Where the rate ends, as a share of its peak."""


def learning_rate(step: int, *, peak: float, warmup: int, steps: int) -> float:
    """The rate of update ``step`` (from 1).

    It rises linearly to ``peak`` within ``warmup`` updates, then falls along half a cosine to a
    tenth of it at update ``steps``.
    """
    if step <= warmup:
        return peak * step / warmup
    done = (step - warmup) / max(steps - warmup, 1)
    return peak * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0))))


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
