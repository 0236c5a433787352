"""The stacks of this process's threads, read from within. No thread is stopped for it.

Reading needs the interpreter (the GIL) for some microseconds a thread; while a rank holds it for
ever nothing of this runs, and the sentinel reads from outside.
"""

import sys
import threading
from collections.abc import Collection, Iterable, Sequence
from types import FrameType
from typing import Any

from rankscope.agent.evidence.places import Place, users_place
from rankscope.protocol import limits
from rankscope.protocol.messages import Frame, Thread

MAX_BYTES = 44 * 1024
"""Of the frames of one message, so that it stays below the size of a frame on the wire."""

OTHERS_FRAMES = 24
"""Innermost frames shown of a thread that does not train."""


def read(training: int, hidden: Collection[int] = ()) -> tuple[str, tuple[Thread, ...]]:
    """``(source, threads)``: the user's line in the training thread, and all threads' stacks.

    ``training`` is that thread's ident, ``hidden`` those of threads that are not shown.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = [
        (ident, names.get(ident, ""), places(frame))
        for ident, frame in sys._current_frames().items()
        if ident not in hidden
    ]
    stacks.sort(key=lambda stack: (stack[0] != training, stack[1]))
    source = users_place(stacks[0][2]) if stacks and stacks[0][0] == training else None
    threads = [
        (name or f"thread {ident}", ident == training, frames, None)
        for ident, name, frames in stacks
    ]
    return str(source or ""), fitted(threads)


def places(frame: FrameType | None) -> list[Place]:
    """Where ``frame`` and those that called it are, the innermost first."""
    found = []
    while frame is not None:
        code = frame.f_code
        found.append(Place(code.co_filename, frame.f_lineno or 0, code.co_name))
        frame = frame.f_back
    return found


def fitted(
    threads: Iterable[tuple[str, bool, Sequence[Place], bool | None]],
) -> tuple[Thread, ...]:
    """Threads ``(name, trains, frames, holds the GIL)`` as a message can carry them.

    The one that trains keeps its innermost and outermost frames; of the others the innermost are
    kept, as many as there is room for.
    """
    room = MAX_BYTES
    made: list[Thread] = []
    for name, main, frames, holds_gil in threads:
        if len(made) == limits.MAX_THREADS:
            break
        most = limits.MAX_FRAMES if main else OTHERS_FRAMES
        kept: list[Frame] = []
        for frame in _thinned(frames, most, both_ends=main):
            one = _frame(frame)
            size = len(one.file.encode("utf-8", "replace")) + len(one.function) + 12
            if size > room:
                break
            room -= size
            kept.append(one)
        made.append(Thread(name[: limits.MAX_NAME_CHARS], main, tuple(kept), holds_gil))
    return tuple(made)


def _thinned(frames: Sequence[Place], most: int, *, both_ends: bool) -> Sequence[Place]:
    if len(frames) <= most:
        return frames
    if not both_ends:
        return frames[:most]
    outer = most // 4
    return [*frames[: most - outer], *frames[-outer:]]


def _frame(place: Place) -> Frame:
    file, line, function = place
    return Frame(file[-512:], max(0, line), function[:256])


def evidence(why: str, training: int, hidden: Collection[int] = ()) -> dict[str, Any]:
    """The fields of ``Stacks`` that come from the threads themselves."""
    source, threads = read(training, hidden)
    return {"why": why, "source": source[: limits.MAX_TEXT_CHARS], "threads": threads}
