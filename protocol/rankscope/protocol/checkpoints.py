"""Checkpoint directories on disk: which there are, and whether one is whole. Needs no torch.

Nothing here writes, and nothing here unpickles.
"""

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from rankscope.protocol import coverage, crc
from rankscope.protocol.exits import UserError
from rankscope.protocol.manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    BadManifest,
    FileEntry,
    Manifest,
    Place,
    Receipt,
    decode_manifest,
    decode_receipt,
    receipt_name,
)

LATEST = "latest"

METADATA = ".metadata"
"""What torch's own ``dcp.load`` reads in place of the manifest."""
TEMPORARY = ".saving-"
"""What a directory's name begins with while it is written."""

BLOCK_BYTES = 4 << 20

State = Literal["complete", "incomplete", "corrupt"]

_NAME = re.compile(r"step-(?P<step>[0-9]{8,})(\.[0-9]+)?")


class Verified(msgspec.Struct):
    """What is to be said of one checkpoint: ``verify-checkpoint --json`` prints this."""

    path: str
    state: State
    step: int | None
    world_size: int | None
    size_bytes: int
    problems: list[str]
    """What is missing or wrong, in words; empty when it is complete."""
    notes: list[str]
    """What is odd and does no harm, such as a file that does not belong to it."""
    checksums: bool
    """Whether the bytes were read; else only names, sizes and coverage were looked at."""
    notfinite: str = ""
    """What it holds that is not finite, in words: it is what was written, and yet of no use where
    that is NaN. Empty when nothing is known of."""


class Found(msgspec.Struct):
    """One entry of a directory of checkpoints."""

    name: str
    step: int
    serial: int
    """-1 where the manifest could not be read."""
    operators: bool
    """Whether an operator asked for it."""
    trouble: str
    """Why it cannot be used, in words; empty when its manifest can be read."""
    notfinite: str = ""
    """As in :class:`Verified`."""
    spoilt: bool = False
    """Whether that is NaN."""


def directory_name(step: int, again: int = 0) -> str:
    """Names sort by step; ``again`` tells one that was saved at the same step later."""
    return f"step-{step:08d}" + (f".{again}" if again else "")


def is_checkpoint_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def find(directory: Path) -> tuple[list[Found], list[str]]:
    """The checkpoints in ``directory``, the newest first, and the names of everything else there.

    Only manifests are read. Those that cannot be read stand at the end. A directory that is not
    there has none. Raises :class:`UserError` when it cannot be read.
    """
    try:
        names = sorted(entry.name for entry in directory.iterdir())
    except FileNotFoundError:
        return [], []
    except OSError as error:
        raise UserError(f"cannot read {directory}: {error.strerror}") from None
    found, others = [], []
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None or not (directory / name).is_dir():
            if name != LATEST:
                others.append(name)
            continue
        try:
            manifest = read_manifest(directory / name)
        except BadManifest as error:
            found.append(Found(name, int(match["step"]), -1, False, str(error)))
            continue
        asked = manifest.request > 0
        found.append(
            Found(
                name,
                manifest.step,
                manifest.serial,
                asked,
                "",
                coverage.notfinite_text(manifest.notfinite),
                coverage.spoilt(manifest.notfinite),
            )
        )
    found.sort(key=lambda one: (one.serial, one.step, one.name), reverse=True)
    return found, others


def read_manifest(path: Path) -> Manifest:
    """Of the checkpoint in directory ``path``. Raises :class:`BadManifest`."""
    return decode_manifest(_read(path, MANIFEST))


def verify(
    path: Path, checksums: bool = True, progress: Callable[[int], None] = lambda done: None
) -> Verified:
    """Look at the checkpoint in directory ``path``: its receipts, its coverage and its bytes.

    ``progress`` is told the bytes read so far. Raises :class:`UserError` when ``path`` is no
    directory that can be read.
    """
    refuse_none(path)
    try:
        manifest = read_manifest(path)
    except Missing as error:
        return Verified(str(path), "incomplete", None, None, 0, [str(error)], [], checksums)
    except BadManifest as error:
        text = f"{MANIFEST} cannot be used: {error}"
        return Verified(str(path), "corrupt", None, None, 0, [text], [], checksums)
    missing, wrong = structure(path, manifest)
    if checksums and not missing and not wrong:
        done = 0
        for name, places in by_file(manifest).items():
            wrong += damaged(path / name, places)
            done += sum(place.length_bytes for _, place in places)
            progress(done)
    state: State = "corrupt" if wrong else "incomplete" if missing else "complete"
    return Verified(
        str(path),
        state,
        manifest.step,
        manifest.world_size,
        sum(file.size_bytes for file in manifest.files),
        coverage.shortened(missing) + coverage.shortened(wrong),
        [*for_torch(path, manifest), *strangers(path, manifest)],
        checksums,
        coverage.notfinite_text(manifest.notfinite),
    )


def refuse_none(path: Path) -> None:
    """Raise :class:`UserError` unless ``path`` is a directory that can hold one checkpoint."""
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            raise UserError(f"{path} is a file; name the directory of a checkpoint")
        inside = {entry.name for entry in path.iterdir()}
    except FileNotFoundError:
        raise UserError(f"there is no {path}; name the directory of a checkpoint") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    if MANIFEST not in inside and any(is_checkpoint_name(name) for name in inside):
        newest = sorted(name for name in inside if is_checkpoint_name(name))[-1]
        raise UserError(f"{path} holds checkpoints; name one of them, such as {path / newest}")
    if not is_checkpoint_name(path.name) and not any(map(_of_a_save, inside)):
        raise UserError(
            f"{path} is no checkpoint: nothing in it is of a save; name the directory of a "
            "checkpoint"
        )


def _of_a_save(name: str) -> bool:
    """Whether a save writes files of that name."""
    return (
        name in (MANIFEST, ".metadata") or name.endswith(".distcp") or name.startswith("receipt-")
    )


def structure(path: Path, manifest: Manifest) -> tuple[list[str], list[str]]:
    """What is missing in the checkpoint and what is wrong with it, the data's bytes unread."""
    missing: list[str] = []
    wrong: list[str] = []
    receipts: list[Receipt] = []
    for rank in range(manifest.world_size):
        try:
            receipts.append(decode_receipt(_read(path, receipt_name(rank))))
        except Missing as error:
            missing.append(str(error))
        except BadManifest as error:
            wrong.append(f"{receipt_name(rank)}: {error}")
    if not missing and not wrong:
        tensors, objects, problems = coverage.united(receipts)
        wrong += problems
        if (tensors, objects) != (manifest.tensors, manifest.objects):
            wrong.append(f"{MANIFEST} does not say what the receipts say")
        if coverage.notfinite(receipts) != manifest.notfinite:
            wrong.append(f"{MANIFEST} does not say of what is not finite what the receipts say")
        if any(receipt.step != manifest.step for receipt in receipts):
            wrong.append(f"{MANIFEST} is of step {manifest.step}, the receipts are not")
    known = {file.name for file in manifest.files}
    for name, places in by_file(manifest).items():
        if name not in known:
            wrong.append(f"{MANIFEST} has entries of {name}, which it does not list")
        elif text := _gaps(name, places, manifest):
            wrong.append(text)
    for file in manifest.files:
        if "/" in file.name or file.name in (".", ".."):
            wrong.append(f"{file.name!r} is no name of a file in the checkpoint")
            continue
        try:
            info = (path / file.name).lstat()
        except OSError:
            missing.append(f"{file.name} (rank {file.rank}) is missing")
            continue
        if not stat.S_ISREG(info.st_mode):
            wrong.append(f"{file.name} (rank {file.rank}) is not a plain file")
        elif info.st_size < file.size_bytes:
            missing.append(
                f"{file.name} (rank {file.rank}) has {info.st_size} of {file.size_bytes} bytes"
            )
        elif info.st_size > file.size_bytes:
            wrong.append(
                f"{file.name} (rank {file.rank}) has {info.st_size} bytes, "
                f"{info.st_size - file.size_bytes} too many"
            )
    return missing, wrong


def by_file(manifest: Manifest | Receipt) -> dict[str, list[tuple[str, Place]]]:
    """What is in each file: names and places, in the order of their bytes."""
    files: dict[str, list[tuple[str, Place]]] = {file.name: [] for file in _files(manifest)}
    for name, entry in manifest.tensors.items():
        for chunk in entry.chunks:
            files.setdefault(chunk.place.file, []).append((name, chunk.place))
    for name, place in manifest.objects.items():
        files.setdefault(place.file, []).append((name, place))
    for places in files.values():
        places.sort(key=lambda item: item[1].at_bytes)
    return files


def damaged(file: Path, places: Iterable[tuple[str, Place]]) -> list[str]:
    """Which of the entries ``places`` of ``file`` are not what was written, in words."""
    wrong = []
    try:
        with file.open("rb", buffering=0) as stream:
            for name, place in places:
                if not intact(stream.fileno(), place):
                    wrong.append(f"{name} in {file.name} is damaged: its checksum does not fit")
    except OSError as error:
        wrong.append(f"{file.name} cannot be read: {error.strerror}")
    return wrong


def intact(descriptor: int, place: Place) -> bool:
    """Whether the bytes of one entry are those that were written."""
    end = place.data_at_bytes + place.data_bytes
    before = place.data_at_bytes - place.at_bytes
    after = place.at_bytes + place.length_bytes - end
    envelope = checksum(descriptor, place.at_bytes, before)
    return (
        checksum(descriptor, place.data_at_bytes, place.data_bytes) == place.crc32
        and checksum(descriptor, end, after, envelope) == place.envelope_crc32
    )


def checksum(descriptor: int, at_bytes: int, length_bytes: int, crc32: int = 0) -> int:
    """CRC-32 of a stretch of a file; of less where the file ends before."""
    buffer = memoryview(bytearray(min(BLOCK_BYTES, length_bytes)))
    while length_bytes > 0:
        count = os.preadv(descriptor, [buffer[: min(len(buffer), length_bytes)]], at_bytes)
        if count == 0:
            break
        crc32 = crc.crc32(buffer[:count], crc32)
        at_bytes += count
        length_bytes -= count
    return crc32


def for_torch(path: Path, manifest: Manifest) -> list[str]:
    """What is wrong with the file that only torch's own ``dcp.load`` needs, in words."""
    if manifest.metadata_bytes is None:
        return []
    try:
        content = _read(path, METADATA)
    except Missing:
        how = "is missing"
    except BadManifest as error:
        how = f"cannot be read: {error}"
    else:
        if (len(content), crc.crc32(content)) == (
            manifest.metadata_bytes,
            manifest.metadata_crc32,
        ):
            return []
        how = "is damaged"
    return [f"{METADATA} {how}: rankscope can go on from this, torch's own dcp.load cannot"]


def strangers(path: Path, manifest: Manifest) -> list[str]:
    """Files beside those of the checkpoint, in words."""
    ours = {MANIFEST, METADATA, *(file.name for file in manifest.files)}
    ours |= {receipt_name(rank) for rank in range(manifest.world_size)}
    try:
        extra = sorted({entry.name for entry in path.iterdir()} - ours)
    except OSError:
        return []
    return coverage.shortened([f"{name} is not part of it" for name in extra])


class Missing(BadManifest):
    """There is no such file."""


def _read(path: Path, name: str) -> bytes:
    descriptor = None
    try:
        descriptor = os.open(path / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise BadManifest("it is not a plain file")
        if info.st_size > MAX_MANIFEST_BYTES:
            raise BadManifest(f"it has {info.st_size} bytes, which is none of rankscope's")
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            return stream.read()
    except FileNotFoundError:
        raise Missing(f"there is no {name}") from None
    except OSError as error:
        raise BadManifest(f"{name} cannot be read: {error.strerror}") from None
    finally:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _files(manifest: Manifest | Receipt) -> Sequence[FileEntry]:
    return manifest.files if isinstance(manifest, Manifest) else [manifest.file]


def _gaps(name: str, places: list[tuple[str, Place]], manifest: Manifest) -> str:
    """Entries must follow each other without a gap, or bytes could change unseen."""
    size = next(file.size_bytes for file in manifest.files if file.name == name)
    at = 0
    for _, place in places:
        data_end = place.data_at_bytes + place.data_bytes
        end = place.at_bytes + place.length_bytes
        if place.at_bytes != at or not place.at_bytes <= place.data_at_bytes <= data_end <= end:
            return f"{name}: the entries of {MANIFEST} do not follow each other"
        at = end
    return "" if at == size else f"{name}: the entries of {MANIFEST} end at {at} of {size} bytes"
