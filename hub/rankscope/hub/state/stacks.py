"""The newest stacks of each rank: from within, and as its sentinel reads them.

Equal frames and equal stacks are kept once: thousands of ranks wait in the same place.
"""

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from rankscope.hub.state.words import MAX_KEPT, Interned
from rankscope.protocol import messages as m

MAX_THREADS_KEPT = 16

FrameKey = tuple[str, int, str]
"""File, line, function."""


class ThreadNote(msgspec.Struct, array_like=True, frozen=True):
    name: str
    main: bool
    stack: int
    """Index into ``Stacks.stacks``."""
    holds_gil: bool | None


class StackNote(msgspec.Struct, frozen=True):
    """What was seen of one rank at one moment."""

    at_s: float
    """When it came, hub clock."""
    why: str
    source: str
    threads: tuple[ThreadNote, ...]
    """The training thread first."""
    step: int = 0
    phase: int = int(m.Phase.OTHER)
    native: bool = False
    error: str = ""
    gil_since_s: float | None = None
    """Since when, hub clock, each reading has found the GIL held by this thread at this line."""

    def main(self) -> ThreadNote | None:
        return next((thread for thread in self.threads if thread.main), None)

    def gil_holder(self) -> ThreadNote | None:
        return next((thread for thread in self.threads if thread.holds_gil), None)


class Stacks:
    """By rank; a part of the state."""

    def __init__(self) -> None:
        self.inside: dict[int, StackNote] = {}
        self.outside: dict[int, StackNote] = {}
        """As the rank's sentinel read them, the newest."""
        self.placed: dict[int, StackNote] = {}
        """The newest of those that say where the training thread is, unless it moved since: a
        process is read many times over, and one that ends, or runs, may show nothing."""
        self.frames: Interned[FrameKey] = Interned()
        self.stacks: Interned[tuple[int, ...]] = Interned()
        self.backward_source = ""
        """The user's line from which a backward was seen to run, on any rank."""

    def told(self, message: m.Stacks, received_s: float) -> None:
        """A rank tells of itself."""
        if message.phase == m.Phase.BACKWARD and message.source:
            self.backward_source = message.source
        self.inside[message.rank] = StackNote(
            at_s=received_s,
            why=message.why,
            source=message.source,
            threads=self._threads(message.threads),
            step=message.step,
            phase=int(message.phase),
        )

    def seen(self, message: m.ForeignStacks, received_s: float, moved_s: float = math.nan) -> None:
        """A sentinel has read a rank, or says why it cannot.

        ``moved_s``: when the rank last went on, hub clock; NaN where that is not known.
        """
        threads = self._threads(message.threads)
        before = self.outside.get(message.rank)
        placed = self.placed.get(message.rank)
        if placed is not None and placed.at_s < moved_s:
            del self.placed[message.rank]
        elif placed is not None and before is not None and not threads:
            # That it cannot be read now takes nothing from what was read while it stood there.
            self.outside[message.rank] = msgspec.structs.replace(before, error=message.error)
            return
        note = StackNote(
            at_s=received_s,
            why="asked",
            source=message.source,
            threads=threads,
            native=message.native,
            error=message.error,
        )
        holder = note.gil_holder()
        if holder is not None:
            was = None if before is None else before.gil_holder()
            same = was is not None and self._place(was) == self._place(holder)
            since_s = before.gil_since_s if before is not None and same else received_s
            note = msgspec.structs.replace(note, gil_since_s=since_s)
        self.outside[message.rank] = note
        if self._is_placed(note):
            self.placed[message.rank] = note

    def is_outside(self, rank: int, note: StackNote) -> bool:
        """Whether the rank's sentinel read it."""
        return note is self.outside.get(rank) or note is self.placed.get(rank)

    def _is_placed(self, note: StackNote) -> bool:
        """Whether it says where the training thread is."""
        thread = note.main() or next(iter(note.threads), None)
        return thread is not None and bool(self.stacks.values[thread.stack])

    def _place(self, thread: ThreadNote) -> tuple[str, list[FrameKey]]:
        """The thread and its lines of Python; those of C change while it stays in one call."""
        frames = self.frames_of(thread)
        return thread.name, [frame for frame in frames if frame[0].endswith(".py")] or frames

    def newest(self, rank: int, since_s: float = 0.0) -> StackNote | None:
        """The newest stacks of the rank with frames in them, not older than ``since_s``."""
        notes = (self.inside.get(rank), self.placed.get(rank), self.outside.get(rank))
        found = [note for note in notes if note is not None and self._is_placed(note)]
        newest = max(found, key=lambda note: note.at_s, default=None)
        return newest if newest is not None and newest.at_s >= since_s else None

    def stands(self, rank: int, moved_s: float) -> bool:
        """Whether it is known where the rank is that went on last at ``moved_s``, hub clock."""
        return self.newest(rank, moved_s) is not None

    def frames_of(self, thread: ThreadNote) -> list[FrameKey]:
        """The thread's frames, innermost first."""
        return [self.frames.values[index] for index in self.stacks.values[thread.stack]]

    def _threads(self, threads: Iterable[m.Thread]) -> tuple[ThreadNote, ...]:
        if max(len(self.frames.values), len(self.stacks.values)) > MAX_KEPT - limit_of_one():
            self.forget_all()  # too many different ones were told: what comes now is kept
        found = sorted(threads, key=lambda thread: not thread.main)[:MAX_THREADS_KEPT]
        return tuple(
            ThreadNote(
                thread.name,
                thread.main,
                self.stacks.index(
                    tuple(
                        self.frames.index((frame.file, frame.line, frame.function))
                        for frame in thread.frames
                    )
                ),
                thread.holds_gil,
            )
            for thread in found
        )

    # --- a part of the state ------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        pass

    def forget(self, rank: int) -> None:
        self.inside.pop(rank, None)
        self.outside.pop(rank, None)
        self.placed.pop(rank, None)

    def forget_all(self) -> None:
        self.inside.clear()
        self.outside.clear()
        self.placed.clear()
        self.backward_source = ""
        self.frames = Interned()
        self.stacks = Interned()

    def dump(self) -> Any:
        return {
            "inside": msgspec.to_builtins(self.inside, str_keys=False),
            "outside": msgspec.to_builtins(self.outside, str_keys=False),
            "placed": msgspec.to_builtins(self.placed, str_keys=False),
            "frames": self.frames.values,
            "stacks": self.stacks.values,
            "backward_source": self.backward_source,
        }

    def load(self, saved: Any) -> None:
        inside = msgspec.convert(saved["inside"], dict[int, StackNote])
        outside = msgspec.convert(saved["outside"], dict[int, StackNote])
        placed = msgspec.convert(saved.get("placed", {}), dict[int, StackNote])
        frames = msgspec.convert(saved["frames"], list[FrameKey])
        stacks = msgspec.convert(saved["stacks"], list[tuple[int, ...]])
        if any(not 0 <= index < len(frames) for stack in stacks for index in stack):
            raise ValueError("a stack names a frame that is not there")
        for note in (*inside.values(), *outside.values(), *placed.values()):
            if any(not 0 <= thread.stack < len(stacks) for thread in note.threads):
                raise ValueError("a thread names a stack that is not there")
        self.backward_source = msgspec.convert(saved.get("backward_source", ""), str)
        self.inside, self.outside, self.placed = inside, outside, placed
        self.frames.load(frames)
        self.stacks.load(stacks)


def limit_of_one() -> int:
    """How many frames one message can bring."""
    return MAX_THREADS_KEPT * 128
