"""The newest collectives, from torch's flight recorder, in the field's words.

A dump takes some 15 µs for each entry of the ring (30 ms for the 2,000 of the default), during
which the interpreter is held: it is taken once, when the rank does not advance, and when asked.
The form without stacks is read: with them it takes 0.2–4 s. Source lines come from the notes that
the calls of collectives leave (:mod:`rankscope.agent.probes.issued`).
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rankscope.protocol import limits
from rankscope.protocol.elementtypes import DTYPES
from rankscope.protocol.messages import Operation

MAX_SIZES_CHARS = 96
MAX_SOURCE_CHARS = 120
MAX_BYTES = 56 * 1024

Sources = Mapping[tuple[str, int], str]
"""``file:line in function`` by (group's name, sequence number)."""


class Entry(msgspec.Struct):
    """One entry of the recorder's JSON form."""

    process_group: list[str]
    collective_seq_id: int
    profiling_name: str
    time_created_ns: int
    state: str
    record_id: int = 0
    p2p_seq_id: int = 0
    input_sizes: Any = ()
    input_dtypes: list[str] = []
    output_sizes: Any = ()
    output_dtypes: list[str] = []
    retired: bool = False
    is_p2p: bool = False


class _Dump(msgspec.Struct):
    entries: list[Entry] = []


_decoder = msgspec.json.Decoder(_Dump)


def read(dump: Callable[..., bytes]) -> list[Entry]:
    """All entries of one recorder, oldest first, but those of groups that are nobody's."""
    entries = _decoder.decode(dump(includeCollectives=True)).entries
    entries.sort(key=lambda entry: entry.record_id)
    return [entry for entry in entries if entry.process_group and entry.process_group[0]]


def operations(
    entries: list[Entry], sources: Sources, unix_ns: int | None = None
) -> tuple[Operation, ...]:
    """The newest of ``entries`` that one message can carry, oldest first.

    Of sends and receives between two ranks, which count apart, those that are pending.
    """
    now_ns = time.time_ns() if unix_ns is None else unix_ns
    chosen = [entry for entry in entries if not entry.is_p2p or not _is_over(entry)]
    made: list[Operation] = []
    room = MAX_BYTES
    for entry in reversed(chosen[-limits.MAX_OPERATIONS :]):
        one = operation(entry, sources, now_ns)
        room -= len(one.group) + len(one.name) + len(one.sizes) + len(one.source.encode()) + 48
        if room < 0:
            break
        made.append(one)
    return tuple(reversed(made))


def operation(entry: Entry, sources: Sources, unix_ns: int) -> Operation:
    group = entry.process_group[0][: limits.MAX_NAME_CHARS]
    seq = entry.p2p_seq_id if entry.is_p2p else entry.collective_seq_id
    return Operation(
        group=group,
        seq=max(0, seq),
        name=entry.profiling_name[: limits.MAX_NAME_CHARS],
        sizes=sizes(entry.input_sizes, entry.output_sizes),
        dtype=dtypes(entry.input_dtypes or entry.output_dtypes),
        state="completed" if _is_over(entry) else entry.state[: limits.MAX_NAME_CHARS],
        source="" if entry.is_p2p else sources.get((group, seq), "")[:MAX_SOURCE_CHARS],
        age_s=max(0.0, (unix_ns - entry.time_created_ns) / 1e9),
    )


def _is_over(entry: Entry) -> bool:
    # On gloo the state stays "scheduled" for ever, and this is the flag of completion.
    return entry.retired or entry.state == "completed"


def sizes(inputs: Any, outputs: Any) -> str:
    """``[4] -> [2, 4]``; several tensors with commas between, a long list cut short.

    Empty of an operation without tensors, such as a barrier; ``[]`` is a scalar.
    """
    if not inputs and not outputs:
        return ""
    return _cut(f"{_shapes(inputs)} -> {_shapes(outputs)}")


def _shapes(shapes: Any) -> str:
    if not shapes:
        return "none"
    text = ", ".join(str(list(shape)) for shape in shapes[:4])
    return text if len(shapes) <= 4 else f"{text}, and {len(shapes) - 4} more"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SIZES_CHARS else text[: MAX_SIZES_CHARS - 1] + "…"


def dtypes(names: list[str]) -> str:
    """``float32``; the different ones with commas between."""
    return ", ".join(dict.fromkeys(DTYPES.get(name, name.lower()) for name in names))[
        : limits.MAX_NAME_CHARS
    ]


def dumps() -> list[Callable[..., bytes]]:
    """The recorders' dump functions that this torch has: of gloo and its like, and of NCCL."""
    try:
        from torch._C import _distributed_c10d as c10d
    except ImportError:
        return []
    names = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
    return [getattr(c10d, name) for name in names if hasattr(c10d, name)]
