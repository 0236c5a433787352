"""Sentences in lines that fit."""

import textwrap

from rankscope.tui.text.output import toned
from rankscope.tui.words.marks import Tone

INDENT = "  "


def wrapped(text: str, width: int, tone: Tone | None = None) -> list[str]:
    """``text`` in lines of at most ``width``, all but the first indented."""
    lines = textwrap.wrap(text, width, subsequent_indent=INDENT, break_on_hyphens=False)
    return [toned(line, tone) for line in lines] if tone is not None else lines
