"""What a checkpoint says of itself: ``manifest.json`` and each rank's receipt. Pure.

SPEC.md ("Checkpoints") is the authority on the format. It needs no torch: names, shapes, dtypes and
bytes are all there is in it, so that a machine without torch can verify a checkpoint.
"""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from rankscope.protocol import crc

FORMAT = 1
"""The format this version writes. A reader refuses a larger one."""

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 30

Whole = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Crc = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]


class Place(msgspec.Struct, array_like=True, frozen=True):
    """Where an entry is, and what its bytes add up to.

    An entry is what ``torch.save`` would have written; ``data`` are the tensor's own bytes within
    it, C-contiguous and little-endian, and what is around them is the envelope. An object has no
    envelope. Checksums are zlib's CRC-32.
    """

    file: str
    at_bytes: Whole
    """Where the entry begins in the file."""
    length_bytes: Whole
    data_at_bytes: Whole
    """Where its data begin in the file."""
    data_bytes: Whole
    crc32: Crc
    """Of the data."""
    envelope_crc32: Crc
    """Of what is before the data and after them, in this order; 0 when there is nothing."""


class Chunk(msgspec.Struct, array_like=True, frozen=True):
    """A box of a tensor: ``offsets`` and ``lengths`` for each of its dimensions."""

    offsets: tuple[Whole, ...]
    lengths: tuple[Whole, ...]
    place: Place


class TensorEntry(msgspec.Struct):
    dtype: str
    """As torch prints it, without ``torch.``: ``float32``."""
    shape: tuple[Whole, ...]
    """Of the whole tensor, however many ranks hold it."""
    chunks: list[Chunk]


class FileEntry(msgspec.Struct):
    name: str
    size_bytes: Whole
    rank: Whole


class Receipt(msgspec.Struct):
    """What one rank says it has written, as ``receipt-RANK.json`` beside its file."""

    format: int
    request: Whole
    """The operator's request that this save answers; 0 for one that was not asked for."""
    step: Whole
    rank: Whole
    world_size: Whole
    layout: Crc
    """Of all names, shapes and dtypes of the state, those of other ranks' parts too."""
    alike: dict[str, Crc]
    """By name of each thing that all ranks hold alike: of its small values."""
    file: FileEntry
    tensors: dict[str, TensorEntry]
    objects: dict[str, Place]
    notes: dict[str, str] = {}
    """What the program that trains wants to find again, such as its settings."""
    notfinite: dict[str, str] | None = None
    """By name of each parameter that is not finite in what this rank wrote of it: ``nan``, or
    ``inf`` where it holds that alone. None where nobody looked."""


class Manifest(msgspec.Struct):
    """A whole checkpoint: its receipts put together by rank 0, which has verified them."""

    format: int
    serial: Whole
    """Counts the checkpoints of a directory: the newest has the largest."""
    step: Whole
    request: Whole
    world_size: Whole
    created_s: float
    """Unix time, for people."""
    files: list[FileEntry]
    tensors: dict[str, TensorEntry]
    objects: dict[str, Place]
    notes: dict[str, str] = {}
    paths: dict[str, list[str | int]] = {}
    """Where each tensor and object stands in the nested state it came from."""
    metadata_bytes: Whole | None = None
    """Of ``.metadata``, which is for torch's own ``dcp.load`` alone; None where there is none."""
    metadata_crc32: Crc = 0
    notfinite: dict[str, str] | None = None
    """As in the receipts, of all of them; None where none says."""


class BadManifest(ValueError):
    """The bytes are no manifest or receipt that this version can read; the text says why."""


Document = TypeVar("Document", Manifest, Receipt)

_HEAD = b'{"crc32": "%08x",'
_HEAD_BYTES = len(_HEAD % 0)


def encode(document: Manifest | Receipt) -> bytes:
    """JSON whose first key is the CRC-32 of everything behind it."""
    body = msgspec.json.encode(document)[1:]
    return _HEAD % crc.crc32(body) + body


def decode_manifest(content: bytes) -> Manifest:
    """Raises :class:`BadManifest`."""
    return _decode(content, Manifest)


def decode_receipt(content: bytes) -> Receipt:
    """Raises :class:`BadManifest`."""
    return _decode(content, Receipt)


def _decode(content: bytes, kind: type[Document]) -> Document:
    body = content[_HEAD_BYTES:]
    if content[:_HEAD_BYTES] != _HEAD % crc.crc32(body):
        raise BadManifest("it is damaged: its checksum does not fit")
    try:
        format_ = msgspec.json.decode(content, type=_Format).format
        if format_ > FORMAT:
            raise BadManifest(f"it is of format {format_}, this version reads up to {FORMAT}")
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadManifest(str(error)) from None


class _Format(msgspec.Struct):
    format: int


def receipt_name(rank: int) -> str:
    return f"receipt-{rank:05d}.json"


def data_name(rank: int) -> str:
    """DCP's own name for the only file of a rank."""
    return f"__{rank}_0.distcp"
