"""The next step to take, in lines: a command in it is never broken, so that it can be copied."""

import re
import textwrap

from rankscope.protocol.pasting import pieces

_ARGUMENT = re.compile(r"""(?:'[^']*'|"[^"]*"|\S)+""")
"""One argument of a command; a quoted part, in either kind of quotes, may have blanks."""


def advice_lines(text: str, width: int) -> list[str]:
    """One line where all of it fits ``width``; else a line of its own for each command, however
    long it is (a terminal that wraps a line still copies it whole), and prose wrapped between.
    """
    width = max(1, width)
    parts = pieces(text)
    whole = "".join(part if to_copy else re.sub(r"\s+", " ", part) for part, to_copy in parts)
    whole = whole.strip()
    if len(whole) <= width:
        return [whole] if whole else []
    lines: list[str] = []
    for piece, to_copy in parts:
        if to_copy:
            lines.append(piece)
        else:
            # What only joined two commands in a sentence needs no line.
            prose = piece.strip().lstrip(",;.) ")
            lines += textwrap.wrap(prose, width, break_long_words=False, break_on_hyphens=False)
    return lines


def longest_command(text: str) -> int:
    """Characters of the longest command in ``text``; 0 without one."""
    return max((len(piece) for piece, to_copy in pieces(text) if to_copy), default=0)


def wrapped_command(command: str, width: int) -> list[str]:
    """``command`` in lines of ``width``, broken between arguments, with the backslash by which a
    shell goes on in the next line. An argument that is longer than a line stays whole."""
    lines: list[str] = []
    current = ""
    arguments = _ARGUMENT.findall(command)
    for at, argument in enumerate(arguments):
        longer = f"{current} {argument}" if current else argument
        last = at == len(arguments) - 1
        if current and len(longer) + (0 if last else 2) > width:
            lines.append(f"{current} \\")
            current = argument
        else:
            current = longer
    return [*lines, current] if current else lines
