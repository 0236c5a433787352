"""Clipping by the global norm."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """Scale the reduced gradients down to a global norm of ``max_norm``; returns the norm before.

    To be called once for each update, after the last microbatch: clipped parts do not add up to a
    clipped sum. A norm that is not finite is passed on, and the gradients become NaN.
    """
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
