"""The recording: every frame of an agent key as it came, in segments that start with a snapshot.

A segment is a stream of MessagePack arrays ``[hub_s, kind, data]``. It is written without
buffering beyond one round of the poll loop, so a killed hub loses nothing it has acted on but the
last round. Further snapshots stand between the frames now and then, so that a restarted hub
replays little.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgpack
import msgspec

from rankscope.protocol import limits

SNAPSHOT, FRAME, TICK = 0, 1, 2

SNAPSHOT_EVERY_BYTES = 1024 * 1024
SNAPSHOT_SHARE = 4
"""Frames between two snapshots take at least this many times the snapshot's bytes."""

MAX_TOTAL_BYTES = limits.MAX_SEGMENTS * limits.SEGMENT_BYTES
RETRY_S = 10.0
MAX_SEGMENT_READ_BYTES = 1 << 30


class Record(NamedTuple):
    hub_s: float
    kind: int
    data: bytes | None


_encoder = msgspec.msgpack.Encoder()


def pack(hub_s: float, kind: int, data: bytes | None) -> bytes:
    """One record as it stands in a segment."""
    return _encoder.encode((hub_s, kind, data))


def segments(directory: Path) -> list[Path]:
    """The segments of a recording, oldest first."""
    found = []
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            if path.suffix == ".rec" and path.stem.isdecimal():
                found.append(path)
    return sorted(found, key=lambda path: int(path.stem))


def read_segment(path: Path) -> Iterator[Record]:
    """The records of a segment up to its end, or to where it was cut off or damaged."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_SEGMENT_READ_BYTES)
    except OSError:
        return
    yield from parse(raw)


def parse(raw: bytes) -> Iterator[Record]:
    """The whole records at the beginning of ``raw``."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(raw)), use_list=False)
    unpacker.feed(raw)
    while True:
        try:
            record = unpacker.unpack()
        except (msgpack.exceptions.UnpackException, ValueError, RecursionError):
            return  # a truncated tail, or damage: nothing after it can be trusted
        match record:
            case (float(), int(), bytes() | None) if record[1] in (SNAPSHOT, FRAME, TICK):
                yield Record(*record)
            case _:
                return


class Recorder:
    """Writes a recording. It never raises: what cannot be written is said in ``trouble``."""

    def __init__(
        self,
        directory: Path,
        *,
        segment_bytes: int = limits.SEGMENT_BYTES,
        snapshot_every_bytes: int = SNAPSHOT_EVERY_BYTES,
    ) -> None:
        self.directory = directory
        self.trouble = ""
        """Why nothing is recorded, in words; empty while all is well."""
        self._segment_bytes = segment_bytes
        self._snapshot_every_bytes = snapshot_every_bytes
        self._buffer: list[bytes] = []
        self._descriptor: int | None = None
        self._path: Path | None = None
        """The newest segment; kept through trouble, to go on in it."""
        self._segment_size = 0
        """Bytes of whole records in it."""
        self._snapshot_size = 0
        self._since_snapshot = 0
        self._retry_at_s = 0.0

    def frame(self, hub_s: float, frame: bytes) -> None:
        if self._descriptor is not None:
            self._buffer.append(pack(hub_s, FRAME, frame))

    def tick(self, hub_s: float) -> None:
        if self._descriptor is not None:
            self._buffer.append(pack(hub_s, TICK, None))

    def flush(self) -> None:
        """Hand everything to the operating system."""
        if not self._buffer:
            return
        raw = b"".join(self._buffer)
        self._buffer.clear()
        self._write(raw)

    def wants_snapshot(self, now_s: float) -> bool:
        """Whether a snapshot is due: to begin, to go on in a new segment, or after trouble."""
        if self._descriptor is None:
            return now_s >= self._retry_at_s
        return (
            self._since_snapshot
            >= max(self._snapshot_every_bytes, SNAPSHOT_SHARE * self._snapshot_size)
            or self._segment_is_full()
        )

    def snapshot(self, hub_s: float, snapshot: bytes) -> None:
        """Write a snapshot, at the head of a new segment when the current one is full."""
        self.flush()
        if self._descriptor is None or self._segment_is_full():
            self._open(hub_s)
        if self._descriptor is None:
            return
        raw = pack(hub_s, SNAPSHOT, snapshot)
        self._snapshot_size = len(raw)
        begun = self._segment_size == 0
        if self._write(raw):
            self._since_snapshot = 0
            self.trouble = ""
            if begun:
                # Not before: an old segment is worth more than an empty one.
                self._prune()

    def close(self) -> None:
        self.flush()
        self._close_segment()

    def _segment_is_full(self) -> bool:
        # In a very large world one snapshot fills a segment: it holds as much again of frames.
        limit = max(self._segment_bytes, (SNAPSHOT_SHARE + 1) * self._snapshot_size)
        return self._segment_size >= limit - self._snapshot_size

    def _open(self, hub_s: float) -> None:
        """Go on in the segment that trouble interrupted, or in a new one."""
        self._close_segment()
        self._retry_at_s = hub_s + RETRY_S
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            if self._path is not None and self._path.exists() and not self._segment_is_full():
                self._descriptor = os.open(self._path, flags)
                os.ftruncate(self._descriptor, self._segment_size)  # a torn record goes
                return
            known = segments(self.directory)
            path = self.directory / f"{int(known[-1].stem) + 1 if known else 1:08d}.rec"
            self._descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            self._fail(error)
            return
        self._path = path
        self._segment_size = 0

    def _prune(self) -> None:
        """Drop the oldest segments beyond the number and the size allowed."""
        total = 0
        older = [path for path in segments(self.directory) if path != self._path]
        for age, path in enumerate(reversed(older), start=1):
            with contextlib.suppress(OSError):
                total += path.stat().st_size
                if age >= limits.MAX_SEGMENTS or total > MAX_TOTAL_BYTES - self._segment_bytes:
                    path.unlink()

    def _write(self, raw: bytes) -> bool:
        if self._descriptor is None:
            return False
        view = memoryview(raw)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            self._fail(error)
            return False
        self._segment_size += len(raw)
        self._since_snapshot += len(raw)
        return True

    def _fail(self, error: OSError) -> None:
        self.trouble = f"not recording: cannot write {self.directory}: {error.strerror}"
        self._close_segment()
        self._buffer.clear()
        if self._path is not None and not self._segment_size:
            # Not even its snapshot was taken: worth nothing to anyone.
            with contextlib.suppress(OSError):
                self._path.unlink()
                self._path = None

    def _close_segment(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None
