"""Whether receipts make one whole checkpoint: equal steps, every key, every element once. Pure."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from rankscope.protocol.manifest import Chunk, Place, Receipt, TensorEntry

MAX_TOLD = 8
"""So many problems of one sort are told one by one."""

MAX_PAIRS = 1 << 20
"""Boxes of one tensor are compared pair by pair up to here, which no usual sharding needs."""


def united(
    receipts: Sequence[Receipt],
) -> tuple[dict[str, TensorEntry], dict[str, Place], list[str]]:
    """The tensors and objects of all ``receipts``, and what is wrong with them, in words.

    ``receipts`` are in the order of ranks. Nothing is wrong with an empty list of problems: the
    ranks saved the same step of the same state, and every element of every tensor is there once.
    """
    problems = disagreements(receipts)
    tensors: dict[str, TensorEntry] = {}
    objects: dict[str, Place] = {}
    for receipt in receipts:
        for name, entry in receipt.tensors.items():
            known = tensors.setdefault(name, TensorEntry(entry.dtype, entry.shape, []))
            if (known.dtype, known.shape) != (entry.dtype, entry.shape):
                problems.append(
                    f"{name} is {entry.dtype} {list(entry.shape)} on rank {receipt.rank} and "
                    f"{known.dtype} {list(known.shape)} on others"
                )
            known.chunks.extend(entry.chunks)
        for name, place in receipt.objects.items():
            if name in objects:
                problems.append(f"{name} was written by more than one rank")
            objects[name] = place
    for name, entry in tensors.items():
        entry.chunks.sort(key=lambda chunk: (chunk.offsets, chunk.place.file))
        if fault := uncovered(entry):
            problems.append(f"{name}: {fault}")
    return dict(sorted(tensors.items())), dict(sorted(objects.items())), shortened(problems)


NAN = "nan"


def notfinite(receipts: Iterable[Receipt]) -> dict[str, str] | None:
    """What the ranks together found that is not finite; None where nobody looked."""
    found: dict[str, str] = {}
    looked = False
    for receipt in receipts:
        looked = looked or receipt.notfinite is not None
        for name, value in (receipt.notfinite or {}).items():
            found[name] = NAN if NAN in (value, found.get(name)) else value
    return dict(sorted(found.items())) if looked else None


def notfinite_text(found: Mapping[str, str] | None) -> str:
    """``it holds NaN: model.weight and 3 more``; empty when all is finite, or nobody looked."""
    if not found:
        return ""
    named = [name for name, value in found.items() if value == NAN] or list(found)
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"it holds {'NaN' if spoilt(found) else 'Inf'}: {named[0]}{more}"


def spoilt(found: Mapping[str, str] | None) -> bool:
    """Whether no run can go on from it. An Inf alone may be meant."""
    return found is not None and NAN in found.values()


def disagreements(receipts: Sequence[Receipt]) -> list[str]:
    """In what ``receipts`` differ that must be equal, in words."""
    if not receipts:
        return ["there is no receipt"]
    first, problems = receipts[0], []
    world = list(range(first.world_size))
    if [receipt.rank for receipt in receipts] != world:
        problems.append(f"there are receipts of ranks {[r.rank for r in receipts]}, not of {world}")
    for receipt in receipts[1:]:
        mine, others = f"rank {receipt.rank}", f"rank {first.rank}"
        if receipt.step != first.step:
            problems.append(f"{others} saved step {first.step} and {mine} step {receipt.step}")
        elif receipt.request != first.request:
            problems.append(
                f"{others} saved for request {first.request} and {mine} for {receipt.request}"
            )
        if receipt.world_size != first.world_size:
            problems.append(f"{mine} counts {receipt.world_size} ranks, not {first.world_size}")
        if receipt.layout != first.layout:
            problems.append(f"{mine} has other tensors (names, shapes or dtypes) than {others}")
        differing = sorted(
            name
            for name in receipt.alike.keys() | first.alike.keys()
            if receipt.alike.get(name) != first.alike.get(name)
        )
        if differing:
            problems.append(f"{', '.join(differing)} differs between {others} and {mine}")
    return problems


def uncovered(entry: TensorEntry) -> str:
    """What keeps the chunks of ``entry`` from covering it exactly once; empty when they do."""
    shape = entry.shape
    for chunk in entry.chunks:
        if not len(chunk.offsets) == len(chunk.lengths) == len(shape):
            return f"a chunk has {len(chunk.lengths)} dimensions, the tensor {len(shape)}"
        ends = zip(chunk.offsets, chunk.lengths, shape, strict=True)
        if any(offset + length > size for offset, length, size in ends):
            return f"a chunk at {list(chunk.offsets)} reaches beyond {list(shape)}"
    there = sum(math.prod(chunk.lengths) for chunk in entry.chunks)
    whole = math.prod(shape)
    if there < whole:
        return f"{whole - there} of {whole} elements are missing"
    if there > whole or overlapping(entry.chunks):
        return "chunks overlap"
    return ""


def overlapping(chunks: Sequence[Chunk]) -> bool:
    """Whether two of ``chunks`` have an element in common."""
    filled = [chunk for chunk in chunks if math.prod(chunk.lengths)]
    if len({(chunk.offsets[1:], chunk.lengths[1:]) for chunk in filled}) <= 1:
        # Cut along the first dimension only, as sharding does: neighbours are enough.
        if filled and not filled[0].offsets:
            return len(filled) > 1
        rows = sorted((chunk.offsets[0], chunk.lengths[0]) for chunk in filled)
        return any(a + n > b for (a, n), (b, _) in itertools.pairwise(rows))
    if len(filled) * (len(filled) - 1) // 2 > MAX_PAIRS:
        return True  # nothing that can be proven whole
    return any(_meet(one, other) for one, other in itertools.combinations(filled, 2))


def _meet(one: Chunk, other: Chunk) -> bool:
    sides = zip(one.offsets, one.lengths, other.offsets, other.lengths, strict=True)
    return all(a < b + m and b < a + n for a, n, b, m in sides)


def shortened(problems: list[str]) -> list[str]:
    """The first of ``problems``, and how many more there are."""
    more = len(problems) - MAX_TOLD
    return problems if more <= 0 else [*problems[:MAX_TOLD], f"and {more} more"]
