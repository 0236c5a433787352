"""Stacks as text."""

from collections.abc import Mapping

from rankscope.protocol.shapes import FrameRow, StacksView
from rankscope.tui.text.output import toned
from rankscope.tui.text.table import clipped
from rankscope.tui.words import numbers, stacks
from rankscope.tui.words.marks import safe

SHOWN_FRAMES = 12
"""Of each place, when all ranks are shown."""


def stacks_text(view: StacksView, width: int, rank: int | None = None) -> list[str]:
    """One paragraph a place, the rarest first; of one ``rank`` all its threads."""
    lines: list[str] = []
    names = stacks.files(view)
    for group in view.groups:
        lines += [
            stacks.head(group, names),
            toned(f"  {stacks.age(group, ended=view.ended)}", "quiet"),
        ]
        if rank is None:
            lines += _frames(group.frames, names, width, SHOWN_FRAMES)
        lines.append("")
    for name, frames in view.threads.items():
        lines += [f"thread {safe(name)}", *_frames(frames, names, width, len(frames)), ""]
    if view.missing:
        lines.append(f"no stack of {numbers.ranks(view.missing)}")
    lines += [safe(note) for note in view.notes]
    if not lines:
        lines.append(
            "no stack is known: ranks tell theirs while they run, or when they do not move"
        )
    return lines[:-1] if not lines[-1] else lines


def _frames(frames: list[FrameRow], names: Mapping[str, str], width: int, most: int) -> list[str]:
    shown = [clipped(f"  {stacks.frame(frame, names)}", width) for frame in frames[:most]]
    left = len(frames) - len(shown)
    return (
        [*shown, f"  … {numbers.plural(left, 'frame')} more: --rank shows all"] if left else shown
    )
