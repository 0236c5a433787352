"""What rank 0 does once every rank has written: verify, make it safe on the disk, and rename."""

import contextlib
import os
import pickle
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from rankscope.agent.checkpoint import dcp
from rankscope.agent.checkpoint.gather import Path as StatePath
from rankscope.agent.checkpoint.hands import sync
from rankscope.agent.checkpoint.meeting import Arrival, Failed
from rankscope.agent.checkpoint.writing import write_small
from rankscope.protocol import checkpoints, coverage, crc, procs
from rankscope.protocol.manifest import (
    FORMAT,
    MANIFEST,
    BadManifest,
    Manifest,
    Receipt,
    decode_receipt,
    encode,
    receipt_name,
)

REMOVED = f"{checkpoints.TEMPORARY}removed-"
"""What the name of a checkpoint that is taken away begins with."""

REMOVALS = 40
REMOVAL_S = 0.05
"""How often a temporary directory is tried again that fills up while it is taken away."""

OWNER = "owner"
"""In a temporary directory: host, pid and start time of rank 0."""


def receipts_of(folder: Path, arrivals: Sequence[Arrival]) -> list[Receipt]:
    """The receipts of all ranks, as they left them. Raises :class:`Failed`."""
    receipts = []
    for arrival in arrivals:
        rank = f"rank {arrival.rank}"
        try:
            content = (folder / receipt_name(arrival.rank)).read_bytes()
        except FileNotFoundError:
            raise Failed(
                f"what {rank} wrote is not to be seen from rank 0; the directory must be on a "
                "file system that all nodes share"
            ) from None
        if (len(content), crc.crc32(content)) != (arrival.size_bytes, arrival.crc32):
            raise Failed(f"the receipt of {rank} is not what it wrote")
        try:
            receipts.append(decode_receipt(content))
        except BadManifest as error:
            raise Failed(f"the receipt of {rank} cannot be used: {error}") from None
    return receipts


def assemble(
    folder: Path, receipts: Sequence[Receipt], serial: int, paths: dict[str, StatePath]
) -> Manifest:
    """The manifest of what the ranks wrote to ``folder``. Raises :class:`Failed` when it is not
    one whole checkpoint."""
    tensors, objects, problems = coverage.united(receipts)
    if problems:
        raise Failed("; ".join(problems))
    first = receipts[0]
    manifest = Manifest(
        format=FORMAT,
        serial=serial,
        step=first.step,
        request=first.request,
        world_size=first.world_size,
        created_s=time.time(),
        files=[receipt.file for receipt in receipts],
        tensors=tensors,
        objects=objects,
        notes=first.notes,
        paths={name: list(path) for name, path in sorted(paths.items())},
        notfinite=coverage.notfinite(receipts),
    )
    missing, wrong = checkpoints.structure(folder, manifest)
    if missing or wrong:
        raise Failed("; ".join([*missing, *wrong]))
    return manifest


def complete(folder: Path, manifest: Manifest) -> None:
    """Write what makes ``folder`` a checkpoint, and have all of it on the disk."""
    (folder / OWNER).unlink()
    with contextlib.suppress(AttributeError, TypeError):  # a torch whose metadata are others
        for_torch = pickle.dumps(dcp.metadata(manifest))
        write_small(folder, checkpoints.METADATA, for_torch)
        manifest.metadata_bytes, manifest.metadata_crc32 = len(for_torch), crc.crc32(for_torch)
    write_small(folder, MANIFEST, encode(manifest))
    sync(folder)


def reveal(folder: Path, directory: Path, step: int) -> tuple[Path, str]:
    """Rename ``folder`` to the name of a checkpoint that is not taken; then move ``latest``.

    Returns where it is now, and why ``latest`` does not lead there; empty when it does.
    """
    again = 0
    while (target := directory / checkpoints.directory_name(step, again)).exists():
        again += 1
    folder.rename(target)
    sync(directory)
    return target, link(directory, target.name)


def link(directory: Path, name: str) -> str:
    """Let ``latest`` lead to ``name``; why it does not, or nothing. No resume rests on it."""
    temporary = directory / f"{checkpoints.TEMPORARY}{checkpoints.LATEST}"
    try:
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(name)
        temporary.replace(directory / checkpoints.LATEST)
        sync(directory)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        return f"{checkpoints.LATEST} does not lead to it ({error.strerror})"
    return ""


def next_serial(directory: Path) -> int:
    found, _ = checkpoints.find(directory)
    return max((one.serial for one in found), default=0) + 1


def remove(folder: Path) -> None:
    """Take a temporary directory away, as far as it can be.

    Another rank may not have heard yet that the save is over, and make a file in it meanwhile.
    """
    assert folder.name.startswith(checkpoints.TEMPORARY)
    for _ in range(REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(REMOVAL_S)


def make_folder(directory: Path, name: str) -> Path:
    """A temporary directory in ``directory``, which says whose it is."""
    directory.mkdir(parents=True, exist_ok=True)
    token = f"{os.getpid():x}{time.time_ns() & 0xFFFFFF:06x}"
    folder = directory / f"{checkpoints.TEMPORARY}{name}-{token}"
    folder.mkdir()
    pid = os.getpid()
    owner = f"{os.uname().nodename} {pid} {procs.start_time_s(pid)}\n"
    write_small(folder, OWNER, owner.encode())
    return folder


def leftovers(directory: Path, alive: Path | None) -> list[Path]:
    """Temporary directories of saves that can never end: their process, on this host, is gone."""
    host = os.uname().nodename
    left = []
    for folder in directory.glob(f"{checkpoints.TEMPORARY}*"):
        if folder == alive or not folder.is_dir() or folder.is_symlink():
            continue
        with contextlib.suppress(OSError, ValueError):
            if folder.name.startswith(REMOVED):
                left.append(folder)
                continue
            owner, pid, start = (folder / OWNER).read_text().split()
            if owner == host and not procs.is_alive(int(pid), float(start)):
                left.append(folder)
    return left
