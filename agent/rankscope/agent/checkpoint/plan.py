"""Which rank writes what. Every rank works it out for itself, and all come to the same.

A tensor that all ranks hold alike is written by one of them; a shard by the rank that has it, or
by one of those that have copies of it. Large ones are cut along their first dimension, so that the
bytes are spread evenly and no entry of a file grows beyond what is checked at one go. Receipts
prove later that nothing was left out and nothing was written twice.
"""

import heapq
import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from rankscope.agent.checkpoint.envelope import LARGEST_BYTES
from rankscope.agent.checkpoint.gather import CannotSave, own_buffer

PIECE_BYTES = 64 << 20

OWN_BUFFER_BYTES = 1 << 20
"""Larger buffers are tables that are the same everywhere, not statistics of what a rank saw."""


class Piece(NamedTuple):
    """A box of a tensor that one rank writes."""

    name: str
    source: Tensor
    """The box itself, a view of the live tensor; not a DTensor."""
    shape: tuple[int, ...]
    """Of the whole tensor."""
    offsets: tuple[int, ...]
    lengths: tuple[int, ...]

    @property
    def data_bytes(self) -> int:
        return math.prod(self.lengths) * self.source.element_size()


def plan(
    tensors: Mapping[str, Tensor], buffers: Collection[str], rank: int, world_size: int
) -> list[Piece]:
    """The pieces of ``tensors`` that ``rank`` of ``world_size`` writes.

    Those called ``buffers`` may differ between ranks: rank 0's are everybody's, as they are for
    DDP, and each other rank writes its own as well, if it is not large.

    Raises :class:`CannotSave` for a tensor whose parts cannot be told.
    """
    whole: list[Piece] = []
    own: list[Piece] = []
    shards = itertools.count()
    for name, tensor in sorted(tensors.items()):
        if not isinstance(tensor, DTensor):
            box = tuple(tensor.shape), (0,) * tensor.ndim
            if name not in buffers:
                whole.extend(cut(name, tensor, *box))
            elif rank == 0:
                own.extend(cut(name, tensor, *box))
            elif tensor.nbytes <= OWN_BUFFER_BYTES:
                own.extend(cut(own_buffer(rank, name), tensor, *box))
            continue
        copy, copies = copy_of(name, tensor)
        for piece in shard_of(name, tensor):
            if next(shards) % copies == copy:
                own.append(piece)
    return own + dealt(whole, rank, world_size)


def dealt(pieces: list[Piece], rank: int, world_size: int) -> list[Piece]:
    """Those of ``pieces``, which all ranks hold, that ``rank`` writes: about equally many bytes."""
    loads = [(0, other) for other in range(world_size)]
    own = []
    for piece in sorted(pieces, key=lambda piece: (-piece.data_bytes, piece.name, piece.offsets)):
        load, writer = loads[0]
        heapq.heapreplace(loads, (load + piece.data_bytes + 1, writer))
        if writer == rank:
            own.append(piece)
    return own


def copy_of(name: str, tensor: DTensor) -> tuple[int, int]:
    """Which copy of its shard this rank has, and how many copies there are."""
    coordinate = tensor.device_mesh.get_coordinate()
    if coordinate is None:
        return 0, 1  # not in the mesh: there is no shard here either
    copy, copies = 0, 1
    for placement, size, at in zip(
        tensor.placements, tensor.device_mesh.shape, coordinate, strict=True
    ):
        if isinstance(placement, Replicate):
            copy, copies = copy * size + at, copies * size
        elif type(placement) is not Shard:  # a strided shard is no box of the tensor
            raise CannotSave(f"{name} is placed as {placement}, which cannot be saved in parts")
    return copy, copies


def shard_of(name: str, tensor: DTensor) -> Iterator[Piece]:
    """This rank's shard of ``tensor``, cut; nothing where it has none."""
    lengths, offsets = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    local = tensor.to_local()
    if tuple(local.shape) != tuple(lengths):
        raise CannotSave(f"{name} has a shard of {tuple(local.shape)}, not of {tuple(lengths)}")
    if math.prod(lengths) or not math.prod(tensor.shape):
        yield from cut(name, local, tuple(tensor.shape), tuple(offsets))


def cut(
    name: str, source: Tensor, shape: tuple[int, ...], offsets: tuple[int, ...]
) -> Iterator[Piece]:
    """``source``, which stands at ``offsets`` of a tensor of ``shape``, in pieces of bounded size.

    Raises :class:`CannotSave` when not even one row fits.
    """
    lengths = tuple(source.shape)
    if not lengths or source.nbytes <= PIECE_BYTES:
        yield Piece(name, source, shape, offsets, lengths)
        return
    row_bytes = source.nbytes // lengths[0]
    if row_bytes > LARGEST_BYTES:
        raise CannotSave(f"{name} has rows of {row_bytes} bytes, more than {LARGEST_BYTES}")
    rows = max(1, PIECE_BYTES // row_bytes)
    for start in range(0, lengths[0], rows):
        count = min(rows, lengths[0] - start)
        yield Piece(
            name,
            source[start : start + count],
            shape,
            (offsets[0] + start, *offsets[1:]),
            (count, *lengths[1:]),
        )
