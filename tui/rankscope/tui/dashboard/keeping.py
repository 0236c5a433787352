"""What can be taken away from a screen: the verdict in words, or the whole screen in a file."""

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.evidence import evidence_lines
from rankscope.tui.dashboard.render.line import Line, plain, text_of
from rankscope.tui.dashboard.screens.base import Room, Screen, head_lines
from rankscope.tui.words.advice import longest_command

COPY_WIDTH = 100
BESIDE = 20
"""Columns that stand beside a command."""
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


def verdict_text(picture: Picture, now_t_s: float) -> str:
    """Which run it is, how it is, and what that rests on: for a message to a colleague."""
    width = _wide_enough(picture, COPY_WIDTH)
    head = head_lines(picture, Room(width, 50, now_t_s), brief=False)
    return text_block([*head[:-1], (), *evidence_lines(picture, width)])


def whole_screen(screen: Screen, picture: Picture, room: Room) -> str:
    """All lines of ``screen``, those that are scrolled away among them, without the keys."""
    layout = screen.layout(picture, replace(room, width=_wide_enough(picture, room.width)))
    middle = [layout.line_at(y) for y in range(layout.count)]
    return text_block([*layout.top, *middle, *layout.bottom[:-1]])


def _wide_enough(picture: Picture, width: int) -> int:
    """``width``, or more where a command to be copied would be cut."""
    commands = (longest_command(finding.next) for finding in picture.findings)
    return max(width, *(length + BESIDE for length in commands), 0)


def text_block(lines: Sequence[Line]) -> str:
    return "".join(f"{plain(text_of(each)).rstrip()}\n" for each in lines)


def write_text(text: str, run: str, screen: str, now_s: float) -> Path:
    """A new private file of this folder, or of the temporary one where this cannot be written to.

    Raises :class:`OSError` when neither can.
    """
    stamp = time.strftime("%H%M%S", time.localtime(now_s))
    stem = f"rankscope-{_UNFIT.sub('_', run) or 'run'}-{screen}-{stamp}"
    for folder in (Path.cwd(), Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError):
            return _write_new(folder, stem, text)
    raise OSError(f"neither {Path.cwd()} nor {tempfile.gettempdir()} can be written to")


def _write_new(folder: Path, stem: str, text: str) -> Path:
    for number in range(100):
        path = folder / f"{stem}{f'-{number}' if number else ''}.txt"
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            return path
    raise OSError(f"too many files {stem} in {folder}")
