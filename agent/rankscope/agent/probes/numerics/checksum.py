"""Checksums over the bits of tensors: one flipped bit changes a tensor's, and so does a swap. Pure.

Bits are read as 64-bit integers and added up with wrap-around: small tensors all in one go, each
integer times a weight of its place; of a large one first the columns of 128, then those with
weights. Weights are odd, so that no bit can vanish. Everything is an operation of the tensors' own
device: on CUDA the result is there when the device has got to it.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

SMALL_BYTES = 1 << 14
"""Tensors up to this size are laid side by side and added up together."""

COLUMNS = 128

MAX_JOINED = 16
"""Rows of sizes whose weights are kept ready."""

_MASK = (1 << 64) - 1
_PLAIN = frozenset({torch.float32, torch.bfloat16, torch.float16, torch.float64})


def bits(tensor: Tensor) -> Tensor | None:
    """``tensor`` as a vector of integers over the same memory; None where it has no plain bits."""
    given = tensor.detach()
    if given.is_meta:
        return None
    if given.dtype in _PLAIN and given.is_contiguous() and given.untyped_storage().nbytes():
        # What nearly all are, at the price of few calls.
        size = given.element_size()
        if not given.numel() * size % 8 and not given.storage_offset() * size % 8:
            return given.view(-1).view(torch.int64) if given.numel() else given
    if given.layout is not torch.strided or given.is_quantized:
        return None
    if given.numel() and not given.untyped_storage().nbytes():
        return None  # freed, as FSDP does
    if given.is_complex():
        given = torch.view_as_real(given.resolve_conj())
    if not given.is_contiguous():
        given = given.contiguous()
    flat = given.view(-1) if given.dim() else given.reshape(1)
    size = flat.element_size()
    if not flat.numel() * size % 8:  # whatever its place in memory: the sum depends on the type
        if flat.storage_offset() * size % 8:
            flat = flat.clone()
        return flat.view(torch.int64)
    return flat.view({8: torch.int64, 4: torch.int32, 2: torch.int16}.get(size, torch.uint8))


class Summer:
    """The weights, kept from one time to the next."""

    def __init__(self) -> None:
        self._weights: dict[torch.device, Tensor] = {}
        self._joined: dict[tuple[torch.device, tuple[int, ...]], tuple[Tensor, Tensor]] = {}

    def checksums(self, tensors: Sequence[Tensor]) -> Tensor:
        """One int64 for each of ``tensors`` (all of one device), on that device.

        What has no plain bits, or none at all, has the checksum 0.
        """
        with torch.no_grad():
            small: list[tuple[int, Tensor]] = []
            large: list[tuple[int, Tensor]] = []
            for index, tensor in enumerate(tensors):
                view = bits(tensor)
                if view is None or not view.numel():
                    continue
                if view.numel() * view.element_size() <= SMALL_BYTES:
                    small.append((index, view))
                    continue
                whole = view.numel() // COLUMNS * COLUMNS
                if whole < view.numel():
                    small.append((index, view[whole:]))
                    view = view[:whole]
                large.append((index, view.view(-1, COLUMNS).sum(0)))
            views = [view for _, view in small or large]
            device = views[0].device if views else torch.device("cpu")
            found = torch.zeros(len(tensors), dtype=torch.int64, device=device)
            if small:
                found.index_add_(0, _there([i for i, _ in small], device), self._sums(small))
            if large:
                columns = torch.stack([sums for _, sums in large])
                weighted = (columns * self._of(device, COLUMNS)[:COLUMNS]).sum(1)
                found.index_add_(0, _there([i for i, _ in large], device), weighted)
            return found

    def _sums(self, parts: list[tuple[int, Tensor]]) -> Tensor:
        """The weighted sum of each, computed side by side as one vector."""
        joined = torch.cat([part for _, part in parts])
        if joined.dtype is not torch.int64:
            joined = joined.to(torch.int64)
        weights, ends = self._beside(joined.device, tuple(part.numel() for _, part in parts))
        running = (joined * weights).cumsum(0)[ends]
        return torch.diff(running, prepend=running.new_zeros(1))

    def _beside(self, device: torch.device, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Weights for tensors of these sizes side by side, each from its own beginning, and where
        each of them ends.
        """
        key = device, sizes
        if key not in self._joined:
            if len(self._joined) >= MAX_JOINED:
                self._joined.clear()
            weights = self._of(device, max(sizes))
            ends = itertools.accumulate(sizes)
            self._joined[key] = (
                torch.cat([weights[:size] for size in sizes]),
                _there([end - 1 for end in ends], device),
            )
        return self._joined[key]

    def _of(self, device: torch.device, count: int) -> Tensor:
        """At least ``count`` weights: odd and without pattern, the same everywhere."""
        known = self._weights.get(device)
        if known is None or known.numel() < count:
            size = max(1024, 1 << (count - 1).bit_length())
            known = self._weights[device] = _weights(size).to(device)
        return known


def _there(indices: list[int], device: torch.device) -> Tensor:
    """``indices`` on ``device``, without waiting for it."""
    found = torch.tensor(indices, dtype=torch.int64, device="cpu")
    return found if device.type == "cpu" else found.pin_memory().to(device, non_blocking=True)


def _weights(count: int) -> Tensor:
    """splitmix64 of each place (Steele, Lea and Flood, 2014), made odd."""
    place = torch.arange(1, count + 1, dtype=torch.int64, device="cpu")
    mixed = place * _signed(0x9E3779B97F4A7C15)
    mixed = (mixed ^ _shifted(mixed, 30)) * _signed(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ _shifted(mixed, 27)) * _signed(0x94D049BB133111EB)
    return (mixed ^ _shifted(mixed, 31)) | 1


def _shifted(value: Tensor, places: int) -> Tensor:
    """A shift to the right that brings in zeros, which torch's own of signed integers does not."""
    return (value >> places) & ((1 << (64 - places)) - 1)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def mixed(value: int) -> int:
    """A checksum as the 63-bit number of the wire, every bit of it in every bit of the result."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return (value ^ (value >> 31)) >> 1


def total(values: Sequence[int]) -> int:
    """One number over checksums in their order."""
    found = len(values)
    for value in values:
        found = mixed(found * 0x9E3779B97F4A7C15 + value)
    return found
