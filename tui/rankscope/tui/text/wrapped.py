"""Sentences in lines that fit."""

import textwrap

from rankscope.protocol.shapes import Finding
from rankscope.tui.text.output import toned
from rankscope.tui.words.advice import advice_lines
from rankscope.tui.words.marks import Tone, safe

INDENT = "  "


def wrapped(text: str, width: int, tone: Tone | None = None) -> list[str]:
    """``text`` in lines of at most ``width``, all but the first indented."""
    lines = textwrap.wrap(text, width, subsequent_indent=INDENT, break_on_hyphens=False)
    return [toned(line, tone) for line in lines] if tone is not None else lines


def next_lines(finding: Finding, width: int) -> list[str]:
    """The next step to take below a finding, a command in it unbroken; none where none is known."""
    step = safe(finding.next)
    return [INDENT + line for line in advice_lines(f"next: {step}" if step else "", width - 2)]
