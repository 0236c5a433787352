"""Which parameters other ranks hold alike, and in which parts they are compared. Pure."""

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

PART_BYTES = 8 << 20
PART_TENSORS = 384
"""A part ends where it would become larger than either."""


class Layout(NamedTuple):
    replicas: str
    """The name that those who hold the same share; empty when nobody holds what this rank does."""
    parts: list[list[int]]
    """Indices of parameters. An odd number of parts, so that steps that are multiples of a power of
    two go through all of them."""


def layout(
    parameters: Sequence[Any], sizes_bytes: Sequence[int], trainer: str, group: str
) -> Layout:
    """Of ``parameters`` with what this rank holds of each, in bytes.

    ``group`` names the ranks that DDP keeps alike; see :func:`replicas_of` for the rest.
    """
    by_name: dict[str, list[int]] = {}
    for index, parameter in enumerate(parameters):
        name = replicas_of(parameter, trainer, group)
        if name:
            by_name.setdefault(name, []).append(index)
    if not by_name:
        return Layout("", [])
    # Others are rare (a frozen part that is laid out in another way) and left out.
    name = max(by_name, key=lambda one: len(by_name[one]))
    return Layout(name, parts(by_name[name], sizes_bytes))


def parts(indices: Sequence[int], sizes_bytes: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = []
    size = PART_BYTES
    for index in indices:
        size += sizes_bytes[index]
        if size > PART_BYTES or len(found[-1]) >= PART_TENSORS:
            found.append([])
            size = sizes_bytes[index]
        found[-1].append(index)
    if found and len(found) % 2 == 0:
        found.append([])  # an empty part: nothing to do at its turn
    return found


def replicas_of(parameter: Any, trainer: str, group: str) -> str:
    """The name of those who hold the same as this rank of ``parameter``; empty when nobody does.

    ``world`` is all ranks; ``unwrapped`` may be all ranks, for nothing here says so: a run without
    a wrapper that torch knows.
    """
    placements = getattr(parameter, "placements", None)
    if placements is None:
        return {"ddp": group, "plain": "unwrapped"}.get(trainer, "")
    mesh = parameter.device_mesh
    copied = [
        dimension
        for dimension, placement in enumerate(placements)
        if placement.is_replicate() and mesh.size(dimension) > 1
    ]
    if not copied:
        return ""
    where = mesh.get_coordinate() or []
    names = mesh.mesh_dim_names or tuple(str(dimension) for dimension in range(mesh.ndim))
    others = [
        f"{names[dimension]} {at}"
        for dimension, at in enumerate(where)
        if dimension not in copied and mesh.size(dimension) > 1
    ]
    ranks = mesh.mesh.flatten().tolist()
    # Two meshes side by side (pipeline stages) must not be taken for one.
    whose = "" if ranks == list(range(len(ranks))) else f" of {label(ranks)}"
    return (", ".join(others) or "world") + whose


def label(ranks: Sequence[int]) -> str:
    """A short name for these ranks, the same on all of them."""
    text = ",".join(str(rank) for rank in ranks)
    return f"ranks {text}" if len(text) <= 24 else f"{len(ranks)} ranks {zlib.crc32(text.encode())}"
