"""This rank's file: entry after entry, checksummed on the way, and safe on the disk at the end."""

import errno
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from rankscope.agent.checkpoint.envelope import aligned
from rankscope.agent.checkpoint.hands import Hand
from rankscope.agent.checkpoint.notfinite import INF, NAN, NOT_LOOKED
from rankscope.agent.checkpoint.process import Span
from rankscope.agent.checkpoint.staging import PAGE_BYTES, PAGED_BYTES, Copied
from rankscope.protocol import crc
from rankscope.protocol.manifest import Chunk, FileEntry, Place, TensorEntry


class Written:
    """What is in the file."""

    def __init__(self, name: str, rank: int) -> None:
        self.file = FileEntry(name, 0, rank)
        self.tensors: dict[str, TensorEntry] = {}
        self.objects: dict[str, Place] = {}
        self.notfinite: dict[str, str] = {}
        """By name of the tensors that were asked about and hold such: ``nan`` or ``inf``."""


def write(
    folder: Path,
    name: str,
    rank: int,
    copies: list[Copied],
    hand: Hand,
    objects: Mapping[str, bytes],
    advance: Callable[[int], None],
    parameters: Collection[str] = (),
) -> Written:
    """Make the file ``name`` in ``folder``, which must not have it yet; ``hand`` writes the data.

    Of the tensors called ``parameters`` it is asked whether their numbers are finite.

    ``advance`` is told of what was written of them, and may raise to end it there. Raises
    OSError when the disk does not take it. What was written is synced by ``hand``.
    """
    written = Written(name, rank)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(folder / name, flags, 0o666)
    try:
        entries = laid_out(copies, parameters)
        at = entries[-1].end if entries else 0
        reserve(descriptor, at + sum(map(len, objects.values())))
        for entry in entries:
            put(descriptor, entry.before, entry.begin)
            put(descriptor, entry.after, entry.span.at + entry.span.size_bytes)
        for key, content in objects.items():
            put(descriptor, content, at)
            crc32 = crc.crc32(content)
            written.objects[key] = Place(name, at, len(content), at, len(content), crc32, 0)
            at += len(content)
        done = hand.write(descriptor, [entry.span for entry in entries], advance)
        for copy, entry, one in zip(copies, entries, done, strict=True):
            around = crc.crc32(entry.after, crc.crc32(entry.before))
            length = entry.end - entry.begin
            place = Place(
                name, entry.begin, length, entry.span.at, entry.span.size_bytes, one.crc32, around
            )
            if one.found in (INF, NAN):
                known = written.notfinite.get(copy.name, INF)
                written.notfinite[copy.name] = NAN if NAN in (known, one.found) else INF
            tensor = written.tensors.setdefault(
                copy.name, TensorEntry(dtype_name(copy.dtype), copy.shape, [])
            )
            tensor.chunks.append(Chunk(copy.offsets, copy.lengths, place))
        written.file.size_bytes = at
    finally:
        os.close(descriptor)
    return written


def write_small(folder: Path, name: str, content: bytes) -> None:
    """A new file with ``content``, synced."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(folder / name, flags, 0o666)
    try:
        put(descriptor, content, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Entry(NamedTuple):
    """A piece as it lies in the file, from ``begin`` to ``end``: ``span`` between its envelope."""

    begin: int
    before: bytes
    span: Span
    after: bytes

    @property
    def end(self) -> int:
        return self.span.at + self.span.size_bytes + len(self.after)


def laid_out(copies: list[Copied], parameters: Collection[str] = ()) -> list[Entry]:
    """The pieces one behind the other; the data of large ones at the beginning of a page, so that
    the disk can take them without a copy."""
    found: list[Entry] = []
    for copy in copies:
        begin = found[-1].end if found else 0
        size_bytes = copy.end - copy.begin
        alignment = PAGE_BYTES if size_bytes >= PAGED_BYTES else 1
        before, after = aligned(copy.dtype, copy.lengths, size_bytes, begin, alignment)
        dtype = dtype_name(copy.dtype) if copy.name in parameters else NOT_LOOKED
        span = Span(copy.begin, size_bytes, begin + len(before), dtype)
        found.append(Entry(begin, before, span, after))
    return found


def reserve(descriptor: int, size_bytes: int) -> None:
    """Take the room at once: a disk that is full says so before anything was written."""
    if size_bytes == 0:
        return
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def put(descriptor: int, content: bytes, at: int) -> None:
    """Write all of ``content`` to ``at`` in the file."""
    left = memoryview(content)
    while left:
        count = os.pwrite(descriptor, left, at)
        left, at = left[count:], at + count
