"""What an update sends, as torch's flight recorder has its collectives."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from rankscope.protocol import budget
from rankscope.protocol.elementtypes import DTYPES
from rankscope.protocol.experiments import Sent

OPERATIONS = {
    "reduce_scatter": budget.ring_bytes,
    "all_gather": budget.ring_bytes,
    "allgather": budget.ring_bytes,
    "all_reduce": budget.all_reduce_bytes,
    "allreduce": budget.all_reduce_bytes,
}
"""What a rank sends of the whole tensor, by the operation that is part of a call's name."""

SPELT = {"allgather": "all_gather", "allreduce": "all_reduce"}


class Recorder:
    """The calls since :meth:`start`."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._newest = -1

    def start(self) -> None:
        self._newest = max((int(e.get("record_id", -1)) for e in entries()), default=-1)

    def sent(self) -> Sent:
        """Of one update, or of what else was called since."""
        new = [e for e in entries() if int(e.get("record_id", -1)) > self._newest]
        if not new:
            if self._ranks == 1:
                return Sent()
            return Sent(note="the flight recorder has none (is TORCH_FR_BUFFER_SIZE 0?)")
        if int(new[-1]["record_id"]) - self._newest != len(new):
            return Sent(note="the flight recorder keeps too few (raise TORCH_FR_BUFFER_SIZE)")
        return count(new, self._ranks)


def entries() -> list[dict[str, Any]]:
    """The newest calls of this process, oldest first; empty where there is no recorder."""
    from torch._C import _distributed_c10d as c10d

    dump = getattr(c10d, "_dump_fr_trace_json", None)
    if dump is None:
        return []
    found: list[dict[str, Any]] = json.loads(dump(includeCollectives=True)).get("entries", [])
    return found


def count(calls: Iterable[Mapping[str, Any]], ranks: int) -> Sent:
    """The volume of ``calls`` (entries of the flight recorder) on a ring of ``ranks``.

    Of a gather the result is the whole tensor, of everything else what goes in. Other operations
    (barriers, broadcasts) are counted by name and send nothing here.
    """
    made: dict[str, int] = {}
    sizes: dict[str, int] = {}
    sent = 0.0
    for call in calls:
        name = str(call.get("profiling_name", "")).partition(":")[2]
        operation = next((known for known in OPERATIONS if known in name), None)
        spelt = SPELT.get(operation or "", operation or name)
        made[spelt] = made.get(spelt, 0) + 1
        side = "output" if spelt == "all_gather" else "input"
        size = _bytes(call.get(f"{side}_sizes", ()), call.get(f"{side}_dtypes", ()))
        sizes[spelt] = sizes.get(spelt, 0) + size
        if operation is not None:
            sent += OPERATIONS[operation](size, ranks)
    return Sent(calls=made, size_bytes=sizes, sent=sent)


def _bytes(shapes: Iterable[Iterable[int]], dtypes: Iterable[str]) -> int:
    named = list(dtypes) or ["Float"]
    elements = [math.prod(shape) for shape in shapes]
    return sum(
        count * width(named[min(index, len(named) - 1)]) for index, count in enumerate(elements)
    )


def width(name: str) -> int:
    """Bytes an element of the flight recorder's element type ``name``; 1 of one not known."""
    dtype = getattr(torch, DTYPES.get(name, ""), None)
    return dtype.itemsize if isinstance(dtype, torch.dtype) else 1
