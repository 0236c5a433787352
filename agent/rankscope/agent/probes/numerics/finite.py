"""Which tensors hold something that is not finite, and what. For tensors on a CPU.

One fused norm over all of them answers for the healthy case; only what it makes suspicious is
looked at element by element. So a norm that overflows by itself (squares beyond 1e38) accuses
nobody.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

FUSED = frozenset({torch.float16, torch.bfloat16, torch.float32})
"""Whose norms ``torch._foreach_norm`` adds up in float32."""


class Trouble(NamedTuple):
    value: str
    """The worst: ``nan``, else ``inf``, else ``-inf``."""
    elements: int
    """How many are not finite."""


def local(tensor: Any) -> Tensor:
    """What this rank holds of a DTensor, and the tensor itself of any other; without a graph."""
    part = getattr(tensor, "_local_tensor", None)
    found: Tensor = part if isinstance(part, Tensor) else tensor
    return found.detach()


def readable(tensor: Tensor) -> bool:
    """Whether there are floating numbers in memory that a CPU can read."""
    return (
        tensor.is_cpu
        and (tensor.is_floating_point() or tensor.is_complex())
        and tensor.layout is torch.strided
        and tensor.numel() > 0
        # What was freed by resizing its storage to nothing (FSDP does) still has its shape.
        and tensor.untyped_storage().nbytes() > 0
    )


def trouble(tensor: Tensor) -> Trouble | None:
    """What is not finite in ``tensor``, element by element; None when all is well."""
    with torch.no_grad():
        if not readable(tensor):
            return None
        given = tensor.detach()
        if given.is_complex():
            given = torch.view_as_real(given.resolve_conj())
        if given.element_size() == 1:  # the float8 types know few operations
            given = given.to(torch.float32)
        count = given.numel() - int(torch.isfinite(given).sum())
        if not count:
            return None
        if bool(torch.isnan(given).any()):
            return Trouble("nan", count)
        return Trouble("inf" if bool((given == torch.inf).any()) else "-inf", count)


def suspects(tensors: Sequence[Tensor]) -> list[int]:
    """Indices of ``tensors`` that may hold something not finite, in order.

    Those that hold it are all among them.
    """
    fused: defaultdict[bool, list[int]] = defaultdict(list)
    found: list[int] = []
    with torch.no_grad():
        for index, tensor in enumerate(tensors):
            if not readable(tensor):
                continue
            if tensor.dtype in FUSED or tensor.dtype is torch.float64:
                fused[tensor.dtype is torch.float64].append(index)
            else:
                found.append(index)
        for wide, indices in fused.items():
            norms = torch._foreach_norm(
                [tensors[index].detach() for index in indices],
                2,
                dtype=None if wide else torch.float32,
            )
            finite = torch.isfinite(torch.stack(norms))
            if not bool(finite.all()):
                flags = finite.tolist()
                found += [index for index, fine in zip(indices, flags, strict=True) if not fine]
    return sorted(found)


def troubles(tensors: Sequence[Tensor]) -> Iterator[tuple[int, Trouble]]:
    """(index, what) of each of ``tensors`` that holds something not finite, in order.

    Who needs only the first does not pay for the others.
    """
    for index in suspects(tensors):
        found = trouble(tensors[index])
        if found is not None:
            yield index, found
