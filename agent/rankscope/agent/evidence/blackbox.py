"""The last collectives that a rank's own code called, where they outlive the rank.

A rank that gloo aborts in C++ can say nothing any more, and what it called last is what explains
it. So each call is written, before it is made, into a few pages of memory that have no file
(``memfd``): the node's sentinel holds them open too (``/proc/<pid>/fd/<n>``), and reads them when
the rank has ended or does not answer. Writing is a copy of some hundred bytes; no disk is involved
and nothing can block.

A slot is ``<sequence: 8 bytes><length: 2 bytes><MessagePack>``; the sequence is written last, and is
0 while the rest is being written.
"""

import contextlib
import fcntl
import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple

import msgspec

from rankscope.protocol.messages import Operation

NAME = "rankscope-calls"
SLOTS = 64
SLOT_BYTES = 256
SIZE_BYTES = SLOTS * SLOT_BYTES
_HEAD = struct.Struct("<QH")
_ROOM = SLOT_BYTES - _HEAD.size
_TEXT_CHARS = 64


class Call(NamedTuple):
    """One call of a collective, as it is written down."""

    unix_ns: int
    group: str
    seq: int
    """The group's sequence number that the call takes; -1 where that cannot be told."""
    name: str
    sizes: str
    dtype: str
    source: str


class BlackBox:
    """The writing end, of one rank."""

    def __init__(self) -> None:
        """Raises OSError (AttributeError) where the system has no such memory."""
        self.descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.write(self.descriptor, bytes(SIZE_BYTES))
            # Nobody can shorten it, which would end the rank when it writes next.
            fcntl.fcntl(
                self.descriptor,
                fcntl.F_ADD_SEALS,
                fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL,
            )
            self._memory = mmap.mmap(self.descriptor, SIZE_BYTES)
        except OSError:
            os.close(self.descriptor)
            raise
        self._count = 0
        self._encode = msgspec.msgpack.Encoder().encode

    def write(self, call: Call) -> None:
        body = self._encode(call)
        if len(body) > _ROOM:
            body = self._encode(_shortened(call))[:_ROOM]
        self._count = count = self._count + 1
        at = (count - 1) % SLOTS * SLOT_BYTES
        memory = self._memory
        _HEAD.pack_into(memory, at, 0, len(body))
        memory[at + _HEAD.size : at + _HEAD.size + len(body)] = body
        _HEAD.pack_into(memory, at, count, len(body))

    def close(self) -> None:
        with contextlib.suppress(OSError, BufferError):
            self._memory.close()
            os.close(self.descriptor)


def _shortened(call: Call) -> Call:
    """Texts cut to what fits; of a source its end is what matters least."""
    return call._replace(
        group=call.group[:24],
        name=call.name[:24],
        sizes=_cut(call.sizes, 48),
        dtype=call.dtype[:16],
        source=_cut(call.source, _TEXT_CHARS),
    )


def _cut(text: str, chars: int) -> str:
    """``text`` of at most ``chars`` bytes."""
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= chars else raw[: chars - 3].decode("utf-8", "ignore") + "…"


_decoder = msgspec.msgpack.Decoder(tuple[int, str, int, str, str, str, str])


def read(raw: bytes) -> list[Call]:
    """The calls in the memory of a rank, oldest first; what is torn or damaged is left out."""
    found: list[tuple[int, Call]] = []
    for at in range(0, len(raw) - SLOT_BYTES + 1, SLOT_BYTES):
        count, length = _HEAD.unpack_from(raw, at)
        if not count or length > _ROOM:
            continue
        with contextlib.suppress(msgspec.DecodeError):
            body = raw[at + _HEAD.size : at + _HEAD.size + length]
            found.append((count, Call(*_decoder.decode(body))))
    found.sort()
    return [call for _, call in found]


def open_of(pid: int, descriptor: int) -> int | None:
    """A descriptor of our own of the black box that process ``pid`` has as ``descriptor``."""
    path = f"/proc/{pid}/fd/{descriptor}"
    with contextlib.suppress(OSError):
        if Path(os.readlink(path)).name.startswith(f"memfd:{NAME}"):  # noqa: PTH115
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None


def operations(calls: list[Call], unix_ns: int) -> tuple[Operation, ...]:
    """``calls`` as messages have them. Whether one was completed is not known."""
    return tuple(
        Operation(
            group=call.group,
            seq=max(0, call.seq),
            name=call.name,
            sizes=call.sizes,
            dtype=call.dtype,
            state="scheduled",
            source=call.source,
            age_s=max(0.0, (unix_ns - call.unix_ns) / 1e9),
        )
        for call in calls
    )
