"""The last collectives that a rank's own code called, where they outlive the rank.

A rank that gloo aborts in C++ can say nothing any more, and what it called last is what explains
it. So each call is written, before it is made, into a few pages of memory that have no file
(``memfd``): the node's sentinel holds them open too (``/proc/<pid>/fd/<n>``), and reads them when
the rank has ended or does not answer. Writing is a copy of some hundred bytes; no disk is involved
and nothing can block.

With each call it is counted how often the rank went on after it, to a step's first forward and to
its first backward: so one that leaves out a call is seen to have gone past it. After the slots
comes one byte more: 1 when the observation ended in order, for the goodbye may not get out in time.

A slot is ``<number><Unix time in ns><sequence number of the group><length><went on><MessagePack>``;
the number (calls are counted from 1) is written last, and is 0 while the rest is being written. How
often the rank went on is one byte, and is written anew each time, as that comes twice a step.
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
CALLS_BYTES = SLOTS * SLOT_BYTES
SIZE_BYTES = CALLS_BYTES + 8
_NUMBER = struct.Struct("<Q")
_REST = struct.Struct("<qqHB")
_HEAD_BYTES = _NUMBER.size + _REST.size
_WENT_ON_AT = _HEAD_BYTES - 1
_MOST_WENT_ON = 255
_ROOM = SLOT_BYTES - _HEAD_BYTES


class Written(NamedTuple):
    """What is the same in all calls made in one place with tensors of one kind."""

    group: str
    name: str
    sizes: str
    dtype: str
    source: str


WENT_ON = Written("", "went_on", "", "", "")
"""No call: the rank has come to the first forward, or the first backward, of a step."""


class Call(NamedTuple):
    """One call of a collective, as it was written down."""

    unix_ns: int
    seq: int
    """The group's sequence number that the call takes; -1 where that cannot be told."""
    what: Written


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
        self._went_on = _MOST_WENT_ON  # after the newest call; there is none yet
        self._went_on_at = 0

    def write(self, unix_ns: int, seq: int, body: bytes) -> None:
        """``body`` is what :func:`encoded` made."""
        memory = self._memory
        at = self._count % SLOTS * SLOT_BYTES
        self._count = count = self._count + 1
        _NUMBER.pack_into(memory, at, 0)
        _REST.pack_into(memory, at + 8, unix_ns, seq, len(body), 0)
        memory[at + _HEAD_BYTES : at + _HEAD_BYTES + len(body)] = body
        _NUMBER.pack_into(memory, at, count)
        self._went_on, self._went_on_at = 0, at + _WENT_ON_AT

    def went_on(self) -> None:
        """The rank has come to the first forward, or the first backward, of a step.

        Noted after the newest call, where there is one; one byte, for it comes between two kernels.
        """
        count = self._went_on + 1
        if count <= _MOST_WENT_ON:
            self._went_on = self._memory[self._went_on_at] = count

    def finish(self, ended: bool = True) -> None:
        """The observation ends in order; or it did, and the process is observed anew."""
        self._memory[CALLS_BYTES] = int(ended)

    def contents(self) -> bytes:
        return self._memory[:]

    def close(self) -> None:
        with contextlib.suppress(OSError, BufferError):
            self._memory.close()
            os.close(self.descriptor)


def encoded(what: Written) -> bytes:
    """The part of a slot that can be made once; long texts are cut short."""
    body = msgspec.msgpack.encode(what)
    if len(body) > _ROOM:
        kept = (_cut(text, most) for text, most in zip(what, _MOST_BYTES, strict=True))
        body = msgspec.msgpack.encode(Written(*kept))
    return body


def _cut(text: str, most: int) -> str:
    """``text`` in at most ``most`` bytes."""
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= most else raw[: most - 3].decode("utf-8", "ignore") + "…"


_MOST_BYTES = (32, 32, 56, 16, 72)
_decoder = msgspec.msgpack.Decoder(tuple[str, str, str, str, str])


def read(raw: bytes) -> list[Call]:
    """The calls in the memory of a rank and where it ``WENT_ON``, oldest first; what is torn or
    damaged is left out."""
    found: list[tuple[int, int, Call]] = []
    for at in range(0, min(len(raw), CALLS_BYTES) - SLOT_BYTES + 1, SLOT_BYTES):
        (number,) = _NUMBER.unpack_from(raw, at)
        unix_ns, seq, length, went_on = _REST.unpack_from(raw, at + 8)
        if not number or length > _ROOM:
            continue
        with contextlib.suppress(msgspec.DecodeError):
            body = raw[at + _HEAD_BYTES : at + _HEAD_BYTES + length]
            found.append((number, went_on, Call(unix_ns, seq, Written(*_decoder.decode(body)))))
    found.sort()
    return [
        one
        for _, went_on, call in found
        for one in (call, *[Call(call.unix_ns, 0, WENT_ON)] * went_on)
    ]


def finished(raw: bytes) -> bool:
    """Whether the observation ended in order."""
    return raw[CALLS_BYTES : CALLS_BYTES + 1] == b"\1"


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
            group=call.what.group,
            seq=max(0, call.seq),
            name=call.what.name,
            sizes=call.what.sizes,
            dtype=call.what.dtype,
            state="scheduled",
            source=call.what.source,
            age_s=max(0.0, (unix_ns - call.unix_ns) / 1e9),
        )
        for call in calls
    )
