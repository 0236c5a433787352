"""A recording as a tape: the state of a run at any moment of it. The recording may be growing.

Going forward goes on from the state that is at hand; going back, or far ahead, begins at the
newest snapshot before the moment. Nothing here knows a socket, and no clock: a moment is a time
of the hub that recorded.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgpack

from rankscope.hub import snapshot
from rankscope.hub.recording import FRAME, SNAPSHOT, TICK, Record, segments
from rankscope.hub.state import RunState

KEPT_SEGMENTS = 2
FAR_RECORDS = 20_000
"""So many records ahead, the next snapshot is read instead."""
GAP_S = 1.5
"""A hub ticks at least once a second: a snapshot after a longer silence is another hub's first."""

HEAD = struct.Struct(">BBd")
"""A record's first bytes: an array of three, a float64, its value (MessagePack)."""
HEAD_IS = (0x93, 0xCB)


class NoTape(ValueError):
    """There is nothing that can be read in the recording."""


@dataclass
class Segment:
    """The records of one file, read as far as it has been written."""

    path: Path
    records: list[Record] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    _read_bytes: int = 0
    _damaged: bool = False

    def read_on(self) -> None:
        """Take in what was written since."""
        if self._damaged:
            return
        try:
            if self.path.stat().st_size <= self._read_bytes:
                return
            with self.path.open("rb") as file:
                file.seek(self._read_bytes)
                raw = file.read()
        except OSError:
            return
        unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(raw)), use_list=False)
        unpacker.feed(raw)
        whole = 0
        while True:
            try:
                record = unpacker.unpack()
            except msgpack.exceptions.OutOfData:
                break  # a record that is being written
            except (msgpack.exceptions.UnpackException, ValueError, RecursionError):
                self._damaged = True
                break
            match record:
                case (float(), int(), bytes() | None) if record[1] in (SNAPSHOT, FRAME, TICK):
                    self.records.append(Record(*record))
                    self.times.append(record[0])
                    whole = unpacker.tell()
                case _:
                    self._damaged = True
                    break
        self._read_bytes += whole


@dataclass
class Position:
    """A state, and where on the tape it is: everything before ``index`` of ``path`` is in it."""

    state: RunState
    path: Path
    index: int
    at_s: float


class Tape:
    """The recording in ``directory`` of ``run``; an empty ``run`` takes any."""

    def __init__(self, directory: Path, run: str) -> None:
        self._directory = directory
        self._run = run
        self._segments: dict[Path, Segment] = {}

    def span(self) -> tuple[float, float]:
        """The times of its first and of its last record. Raises :class:`NoTape`."""
        paths = self._paths()
        if not paths:
            raise NoTape("the recording holds no segment that can be read")
        last = self._segment(paths[-1][1])
        return paths[0][0], max(paths[-1][0], last.times[-1] if last.times else 0.0)

    def go(self, at_s: float, held: Position | None) -> tuple[Position, list[Record]]:
        """Where ``at_s`` is on the tape, and the records that are still to be applied to its state.

        The position is ``held`` itself, moved on, when it could go on from there. The caller
        applies the records, so that it can diagnose between them as the hub did. Before the
        beginning, the state is that of the beginning. Raises :class:`NoTape`.
        """
        if held is not None and held.at_s <= at_s:
            ahead = self._ahead(held, at_s)
            if ahead is not None:
                return held, ahead
        for path in self._newest_first(at_s):
            segment = self._segment(path)
            end = bisect_right(segment.times, at_s)
            for start in reversed(range(end)):
                record = segment.records[start]
                if record.kind != SNAPSHOT:
                    continue
                try:
                    state = snapshot.load(record.data or b"")
                except snapshot.BadSnapshot:
                    continue
                if self._run and state.run != self._run:
                    continue
                position = Position(state, path, start + 1, record.hub_s)
                return position, self._ahead(position, at_s, all_of_it=True) or []
            if segment.records and end == 0:  # before the beginning
                return self.go(segment.times[0], None)
        raise NoTape("no snapshot in the recording can be read")

    def _ahead(
        self, held: Position, at_s: float, *, all_of_it: bool = False
    ) -> list[Record] | None:
        """The records between ``held`` and ``at_s``, ``held`` moved behind them.

        None when it is better to begin at a snapshot: another hub's, or one much nearer.
        """
        found: list[Record] = []
        path, index, before_s = held.path, held.index, held.at_s
        for segment in self._from(held.path):
            first = held.index if segment.path == held.path else 0
            end = bisect_right(segment.times, at_s)
            for record in segment.records[first:end]:
                if record.kind == SNAPSHOT:
                    if record.hub_s - before_s > GAP_S and not all_of_it:
                        return None
                else:
                    found.append(record)
                before_s = record.hub_s
            path, index = segment.path, max(first, end)
            if end < len(segment.records):
                break
            if len(found) > FAR_RECORDS and not all_of_it:
                return None
        if len(found) > FAR_RECORDS and not all_of_it:
            return None
        held.path, held.index, held.at_s = path, index, at_s
        return found

    def _from(self, path: Path) -> Iterator[Segment]:
        number = int(path.stem)
        for other in segments(self._directory):
            if int(other.stem) >= number:
                yield self._segment(other)

    def _newest_first(self, at_s: float) -> list[Path]:
        """The segments that begin before ``at_s``, the newest first; else the oldest."""
        paths = self._paths()
        if not paths:
            raise NoTape("the recording holds no segment that can be read")
        found = [path for began_s, path in reversed(paths) if began_s <= at_s]
        return found or [paths[0][1]]

    def _paths(self) -> list[tuple[float, Path]]:
        """(time of its first record, path) of each segment, oldest first."""
        found = []
        for path in segments(self._directory):
            began_s = _began_s(path)
            if began_s is not None:
                found.append((began_s, path))
        return found

    def _segment(self, path: Path) -> Segment:
        segment = self._segments.pop(path, None) or Segment(path)
        self._segments[path] = segment  # the newest used comes last
        while len(self._segments) > KEPT_SEGMENTS:
            del self._segments[next(iter(self._segments))]
        segment.read_on()
        return segment


def _began_s(path: Path) -> float | None:
    try:
        with path.open("rb") as file:
            head = file.read(HEAD.size)
    except OSError:
        return None
    if len(head) < HEAD.size:
        return None
    *kind, began_s = HEAD.unpack(head)
    return float(began_s) if tuple(kind) == HEAD_IS else None
