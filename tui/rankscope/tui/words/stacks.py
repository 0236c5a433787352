"""Stacks as people read them: the user's own line first, then the way down to where it waits."""

from collections.abc import Mapping

from rankscope.protocol.shapes import FrameRow, StackGroup, StacksView
from rankscope.tui.words import numbers
from rankscope.tui.words.files import named, told_apart
from rankscope.tui.words.marks import safe


def files(view: StacksView) -> dict[str, str]:
    """What each file in ``view`` is called, so that those of the same name are told apart."""
    frames = [frame for group in view.groups for frame in group.frames]
    frames += [frame for thread in view.threads.values() for frame in thread]
    return told_apart(frame.file for frame in frames)


def frame(row: FrameRow, names: Mapping[str, str]) -> str:
    """``train.py:41 in main``; without a line what the native code is called."""
    name = named(row.file, names)
    return safe(f"{name}:{row.line} in {row.function}" if row.line else f"{row.function} ({name})")


def head(group: StackGroup, names: Mapping[str, str]) -> str:
    """``rank 5: loader.py:23 in wait_for_data``: who, and the innermost line of their own code."""
    place = group.source or (frame(group.frames[0], names) if group.frames else "nowhere")
    own = next((one for one in group.frames if frame(one, {}) == group.source), None)
    if own is not None:  # of the name alone two files may be meant
        place = frame(own, names)
    return f"{numbers.ranks(group.ranks)}: {safe(place)}"


def age(group: StackGroup, *, ended: bool) -> str:
    """How old it is, of a run that has ended at its end, and who read it."""
    by = "read by the sentinel" if group.from_outside else "by itself"
    return f"{by}, {numbers.age(group.age_s)} {'before its end' if ended else 'ago'}"
