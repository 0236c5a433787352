"""The input batch of a microbatch: its tensors, and a fingerprint that equal data share. Pure.

What is hashed are up to ``SAMPLED`` elements of each tensor, at places that follow from its size
alone, with type and shape: equal for equal data, on any rank and device. The training thread reads
them; the sending thread hashes.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

SAMPLED = 64
"""Elements of a tensor that go into the fingerprint; of a larger one an even selection."""

MAX_DENSE = 1 << 20
"""A tensor that is not contiguous is laid out anew for its sample up to this many elements."""

MAX_TENSORS = 16
MAX_DEPTH = 4


class Sample(NamedTuple):
    dtype: torch.dtype
    shape: tuple[int, ...]
    elements: list[Any]


def tensors(args: Any, kwargs: Any = None) -> list[tuple[str, Tensor]]:
    """The tensors in a call's arguments with their places (``args[0]``, ``kwargs['x'][1]``).

    Looked for in tuples, lists and dictionaries, ``MAX_DEPTH`` deep, ``MAX_TENSORS`` of them.
    """
    if len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
        return [("args[0]", args[0])]
    found: list[tuple[str, Tensor]] = []
    for place, value in (("args", args), ("kwargs", kwargs or {})):
        for one in _within(place, value, MAX_DEPTH):
            found.append(one)
            if len(found) == MAX_TENSORS:
                return found
    return found


def _within(place: str, value: Any, depth: int) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield place, value
    elif depth and isinstance(value, tuple | list):
        for index, one in enumerate(value):
            yield from _within(f"{place}[{index}]", one, depth - 1)
    elif depth and isinstance(value, dict):
        for key, one in value.items():
            yield from _within(f"{place}[{key!r:.40}]", one, depth - 1)


def selection(tensor: Tensor) -> Tensor | None:
    """The elements that are sampled, as a vector; None where that is too dear."""
    count = tensor.numel()
    flat = tensor.detach()
    if not flat.is_contiguous():
        if count > MAX_DENSE:
            return None
        flat = flat.contiguous()
    if count <= SAMPLED:
        return flat.view(-1)
    # Odd, so that it does not walk down one column of a batch of a power of two.
    stride = -(-count // SAMPLED) | 1
    return flat.as_strided((-(-count // stride),), (stride,), flat.storage_offset())


def sample(tensor: Tensor) -> Sample | None:
    """Of a tensor on a CPU; None where there is none to be had."""
    if not tensor.is_cpu or tensor.layout is not torch.strided or tensor.is_quantized:
        return None
    chosen = selection(tensor)
    return None if chosen is None else Sample(tensor.dtype, tuple(tensor.shape), chosen.tolist())


def fingerprint(samples: Iterable[Sample]) -> int:
    """Of a step's samples, in order: 63 bits."""
    whole = hashlib.blake2b(digest_size=8)
    for sample in samples:
        whole.update(repr((sample.dtype, sample.shape)).encode())
        whole.update(_bytes_of(sample))
    return int.from_bytes(whole.digest(), "little") >> 1


def _bytes_of(sample: Sample) -> bytes:
    """The elements as numbers of 64 bits: to print floats takes thirty times as long."""
    elements = sample.elements
    kind = "d" if sample.dtype.is_floating_point else "q"
    try:
        return struct.pack(f"<{len(elements)}{kind}", *elements)
    except (struct.error, OverflowError):  # complex, or unsigned and very large
        return repr(elements).encode()
