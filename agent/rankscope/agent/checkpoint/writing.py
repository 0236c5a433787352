"""This rank's file: entry after entry, checksummed on the way, and safe on the disk at the end."""

import errno
import io
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from rankscope.agent.checkpoint.envelope import envelope
from rankscope.agent.checkpoint.gather import CannotSave
from rankscope.agent.checkpoint.staging import Copied
from rankscope.protocol.manifest import Chunk, FileEntry, Place, TensorEntry

BLOCK_BYTES = 4 << 20
"""Written and checksummed at one go, both without the GIL."""


class Written:
    """What is in the file."""

    def __init__(self, name: str, rank: int) -> None:
        self.file = FileEntry(name, 0, rank)
        self.tensors: dict[str, TensorEntry] = {}
        self.objects: dict[str, Place] = {}


def write(
    folder: Path,
    name: str,
    rank: int,
    copies: list[Copied],
    data: memoryview,
    objects: Mapping[str, bytes],
    advance: Callable[[int], None],
) -> Written:
    """Make the file ``name`` in ``folder``, which must not have it yet.

    ``advance`` is told of every block that was written, and may raise to end it there. Raises
    OSError when the disk does not take it. What was written is synced by :func:`sync`.
    """
    written = Written(name, rank)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(folder / name, flags, 0o666)
    try:
        reserve(descriptor, size_of(copies, objects))
        out = _Out(descriptor, advance)
        for copy in copies:
            before, after = envelope(copy.dtype, copy.lengths, copy.end - copy.begin)
            at = out.at
            around = out.put(memoryview(before))
            data_at = out.at
            crc32 = out.put(data[copy.begin : copy.end])
            around = out.put(memoryview(after), around)
            place = Place(name, at, out.at - at, data_at, copy.end - copy.begin, crc32, around)
            entry = written.tensors.setdefault(
                copy.name, TensorEntry(dtype_name(copy.dtype), copy.shape, [])
            )
            entry.chunks.append(Chunk(copy.offsets, copy.lengths, place))
        for key, content in objects.items():
            at = out.at
            crc32 = out.put(memoryview(content))
            written.objects[key] = Place(name, at, len(content), at, len(content), crc32, 0)
        written.file.size_bytes = out.at
    finally:
        os.close(descriptor)
    return written


def write_small(folder: Path, name: str, content: bytes) -> None:
    """A new file with ``content``, synced."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(folder / name, flags, 0o666)
    try:
        _Out(descriptor, lambda count: None).put(memoryview(content))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """Wait until the file or directory ``path`` is on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def size_of(copies: list[Copied], objects: Mapping[str, bytes]) -> int:
    """How long the file will be."""
    size = sum(map(len, objects.values()))
    for copy in copies:
        before, after = envelope(copy.dtype, copy.lengths, copy.end - copy.begin)
        size += len(before) + copy.end - copy.begin + len(after)
    return size


def reserve(descriptor: int, size_bytes: int) -> None:
    """Take the room at once: a disk that is full says so before anything was written."""
    if size_bytes == 0:
        return
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise


def packed(name: str, value: Any) -> bytes:
    """``value`` as ``torch.save`` writes it.

    Raises :class:`CannotSave` when it holds something that could not be loaded again without
    running code of a pickle.
    """
    sink = io.BytesIO()
    try:
        torch.save(value, sink)
        torch.load(io.BytesIO(sink.getvalue()), weights_only=True)
    except Exception as error:  # noqa: BLE001 - whatever the value's own pickling raises
        first = " ".join(str(error).split(". ")[0].split())
        raise CannotSave(
            f"{name} holds a {type(value).__name__} that cannot be saved; "
            f"use tensors, numbers, strings, lists and dicts ({first[:200]})"
        ) from None
    return sink.getvalue()


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class _Out:
    def __init__(self, descriptor: int, advance: Callable[[int], None]) -> None:
        self.at = 0
        self._descriptor = descriptor
        self._advance = advance

    def put(self, content: memoryview, crc32: int = 0) -> int:
        """Write ``content``; returns ``crc32`` continued over it."""
        for begin in range(0, len(content), BLOCK_BYTES):
            block = content[begin : begin + BLOCK_BYTES]
            crc32 = zlib.crc32(block, crc32)
            while block:
                count = os.write(self._descriptor, block)
                block = block[count:]
                self.at += count
                self._advance(count)
        return crc32
