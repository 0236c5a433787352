"""Tensor bytes wrapped as ``torch.save`` would, so that any ``torch.load`` or DCP reads them.

torch's own writer copies a tensor's bytes into Python objects while it holds the GIL, which the
training thread waits for. Here only the kilobyte around them is made in Python: the data go
straight from the staged buffer to the file.

The archive is a zip file (PKWARE's APPNOTE.TXT, sections 4.3.7, 4.3.12 and 4.3.16), nothing
compressed.
"""

import collections
import io
import pickle
import struct
from functools import lru_cache
from typing import Any

import torch

from rankscope.protocol import crc

LARGEST_BYTES = (1 << 32) - (1 << 16)
"""What fits without the zip format's extensions for large files."""

_STORAGES: dict[torch.dtype, str] = {
    torch.float64: "DoubleStorage",
    torch.float32: "FloatStorage",
    torch.float16: "HalfStorage",
    torch.bfloat16: "BFloat16Storage",
    torch.int64: "LongStorage",
    torch.int32: "IntStorage",
    torch.int16: "ShortStorage",
    torch.int8: "CharStorage",
    torch.uint8: "ByteStorage",
    torch.bool: "BoolStorage",
    torch.complex64: "ComplexFloatStorage",
    torch.complex128: "ComplexDoubleStorage",
}
"""torch's names for the storages of the older types; the newer ones are told by their dtype."""

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_EXTRA = struct.Struct("<2sH")
_VERSION, _DATE = 20, 0x21  # the first day the format knows: equal tensors make equal entries


def aligned(
    dtype: torch.dtype, shape: tuple[int, ...], data_bytes: int, at: int, alignment: int
) -> tuple[bytes, bytes]:
    """The envelope of an entry that begins at ``at`` in its file, and whose data begin at a
    multiple of ``alignment`` (bytes) there."""
    before, _ = envelope(dtype, shape, data_bytes)
    padding = -(at + len(before)) % alignment
    if 0 < padding < _EXTRA.size:
        padding += alignment
    return envelope(dtype, shape, data_bytes, padding)


@lru_cache(maxsize=4096)
def envelope(
    dtype: torch.dtype, shape: tuple[int, ...], data_bytes: int, padding: int = 0
) -> tuple[bytes, bytes]:
    """What stands before and after ``data_bytes`` bytes of a contiguous tensor.

    The archive's own checksum of the data is left at 0, which torch does not look at (and writes
    itself when told to save time): the manifest has one. Before the data are ``padding`` bytes
    more, 0 or at least 4, in an extra field such as torch's own writer makes to align them.
    """
    records = (
        ("data.pkl", _description(dtype, shape)),
        (".format_version", b"1"),
        (".storage_alignment", b"64"),
        ("byteorder", b"little"),
        ("version", b"3\n"),
        (".data/serialization_id", b"0" * 40),
    )
    directory: list[bytes] = []
    before = bytearray()
    for name, content in records:
        crc32, size = crc.crc32(content), len(content)
        directory.append(_central(name, crc32, size, len(before)))
        before += _local(name, crc32, size) + content
    directory.append(_central("data/0", 0, data_bytes, len(before)))
    before += _local("data/0", 0, data_bytes, padding)
    central = b"".join(directory)
    count, at = len(directory), len(before) + data_bytes
    end = _END.pack(b"PK\5\6", 0, 0, count, count, len(central), at, 0)
    return bytes(before), central + end


def _local(name: str, crc32: int, size: int, padding: int = 0) -> bytes:
    path = f"archive/{name}".encode()
    head = _LOCAL.pack(b"PK\3\4", _VERSION, 0, 0, 0, _DATE, crc32, size, size, len(path), padding)
    extra = padding - _EXTRA.size
    return head + path + (_EXTRA.pack(b"FB", extra) + bytes(extra) if padding else b"")


def _central(name: str, crc32: int, size: int, at: int) -> bytes:
    path = f"archive/{name}".encode()
    sizes = (crc32, size, size, len(path))
    made = (_VERSION, _VERSION, 0, 0, 0, _DATE)
    return _CENTRAL.pack(b"PK\1\2", *made, *sizes, 0, 0, 0, 0, 0, at) + path


def _description(dtype: torch.dtype, shape: tuple[int, ...]) -> bytes:
    sink = io.BytesIO()
    _Pickler(sink, protocol=2).dump(_Tensor(dtype, shape))
    return sink.getvalue()


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


class _Storage:
    """Stands for the storage of a tensor, which the archive holds under the key 0."""

    def __init__(self, kind: Any, numel: int) -> None:
        self.persistent = ("storage", kind, "0", "cpu", numel)


class _Tensor:
    """Stands for a contiguous tensor, and pickles as one."""

    def __init__(self, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape = dtype, shape

    def __reduce__(self) -> tuple[Any, ...]:
        numel = 1
        for size in self.shape:
            numel *= size
        layout: tuple[Any, ...] = (0, self.shape, _strides(self.shape), False)
        hooks: collections.OrderedDict[str, Any] = collections.OrderedDict()
        named = _STORAGES.get(self.dtype)
        utils: Any = torch._utils
        if named is not None:
            storage = _Storage(getattr(torch, named), numel)
            return utils._rebuild_tensor_v2, (storage, *layout, hooks)
        storage = _Storage(torch.UntypedStorage, numel * self.dtype.itemsize)
        return utils._rebuild_tensor_v3, (storage, *layout, hooks, self.dtype)


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return obj.persistent if isinstance(obj, _Storage) else None
