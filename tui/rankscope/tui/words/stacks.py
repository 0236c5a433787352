"""Stacks as people read them: the user's own line first, then the way down to where it waits."""

from rankscope.protocol.shapes import FrameRow, StackGroup
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import safe


def frame(row: FrameRow) -> str:
    """``train.py:41 in main``; without a line what the native code is called."""
    name = row.file.replace("\\", "/").rpartition("/")[2]
    return safe(f"{name}:{row.line} in {row.function}" if row.line else f"{row.function} ({name})")


def head(group: StackGroup) -> str:
    """``rank 5: loader.py:23 in wait_for_data``: who, and the innermost line of their own code."""
    place = group.source or (frame(group.frames[0]) if group.frames else "nowhere")
    return f"{numbers.ranks(group.ranks)}: {safe(place)}"


def age(group: StackGroup) -> str:
    """How old it is and who read it."""
    by = "read by the sentinel" if group.from_outside else "by itself"
    return f"{by}, {numbers.age(group.age_s)} ago"
