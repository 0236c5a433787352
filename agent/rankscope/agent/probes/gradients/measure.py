"""The norms of tensors, and what is wrong with those that are not finite. Pure.

``torch._foreach_norm`` reads each element once, and its result is not finite where one element is
not. It is also infinite where squares leave the range of fp32 (elements beyond 1e19), which is told
apart here by a second look that is only taken then.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

LARGEST = {torch.float16: 65504.0, torch.bfloat16: 3.3895e38}
"""The types to which gradients are cast for reduction, and where they end."""


WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
"""The types whose norm is taken in another one."""

SUSPICIOUS = 1e30
"""A gradient's norm beyond which a sum over ranks may leave the range of fp32."""


def closely(cast: torch.dtype | None) -> float:
    """Gradients with a norm from here on are looked at closely, when cast to that type next."""
    return SUSPICIOUS if cast is None else LARGEST.get(cast, SUSPICIOUS)


class Bad(NamedTuple):
    """What is not finite in a tensor."""

    value: str
    """``nan``, ``inf`` or ``-inf``, the worst of them in that order."""
    elements: int
    """How many are not finite."""


def real(tensor: Any) -> torch.Tensor | None:
    """``tensor`` as one that norms can be taken of: its shard, its values, its real view.

    None for what is not covered: other subclasses and layouts, integers, tensors without data.
    """
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if not isinstance(tensor, torch.Tensor) or type(tensor) not in _PLAIN:
        return None
    if tensor.layout is torch.sparse_coo:
        tensor = tensor._values()
    if tensor.layout is not torch.strided or tensor.device.type not in ("cpu", "cuda"):
        return None
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    return tensor if tensor.is_floating_point() else None


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def norms(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """L2 norms, one 0-dim tensor each, of real floating tensors on one device, of any type.

    In double precision on a GPU, where that costs no more and never overflows.
    """
    if tensors[0].is_cuda:
        return list(torch._foreach_norm(tensors, 2, dtype=torch.float64))
    return list(torch._foreach_norm(tensors, 2, dtype=torch.float32))


def values(tensors: list[torch.Tensor]) -> list[float]:
    """L2 norms of real floating tensors on a CPU, in fp32 where that can be: all in one go.

    With cold caches the calls take longer than what they read, ``no_grad`` among them.
    """
    if not tensors:
        return []
    if any(tensor.requires_grad for tensor in tensors):
        tensors = [tensor.detach() for tensor in tensors]
    try:
        found: list[float] = torch.stack(norms(tensors)).tolist()
    except (RuntimeError, TypeError):  # one of them has no norm in fp32
        found = [float(norm(tensor)) for tensor in tensors]
    return found


def norm(tensor: torch.Tensor) -> torch.Tensor:
    """The L2 norm of one real floating tensor of any type and size, as a 0-dim double."""
    if not tensor.numel():
        return torch.zeros((), dtype=torch.float64, device=tensor.device)
    found: torch.Tensor = torch.linalg.vector_norm(tensor.detach(), dtype=torch.float64)
    return found


def bad(tensor: Any) -> Bad | None:
    """What is not finite in ``tensor`` (on a CPU: it is read at once); None when nothing is."""
    values = real(tensor)
    if values is None:
        return None
    with torch.no_grad():
        wrong = ~torch.isfinite(values)
        count = int(wrong.sum())
        if not count:
            return None
        if bool(torch.isnan(values).any()):
            return Bad("nan", count)
        return Bad("inf" if bool((values == math.inf).any()) else "-inf", count)


def largest(tensor: Any) -> float:
    """The largest magnitude in ``tensor`` (on a CPU); 0 for an empty one."""
    values = real(tensor)
    if values is None or not values.numel():
        return 0.0
    with torch.no_grad():
        return float(values.abs().max())


def total(values: Sequence[float]) -> float:
    """The norm of the whole from the norms of its parts; NaN if one is, else infinite if one is."""
    found = math.hypot(*values)
    if math.isinf(found) and any(value != value for value in values):
        return math.nan
    return found


def word(value: float) -> str:
    """A number that is not finite, in the wire's words."""
    return "nan" if value != value else "inf" if value > 0 else "-inf"
