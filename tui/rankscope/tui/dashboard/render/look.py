"""What each style name looks like: attributes and the terminal's own sixteen colours.

The user's palette decides what red is, light or dark; and sixteen colours take half the bytes.
"""

from rankscope.tui.dashboard.render.line import StyleName

LOOK: dict[StyleName, str] = {
    "": "",
    "dim": "dim",
    "strong": "bold",
    "good": "green",
    "warn": "bold yellow",
    "bad": "bold red",
    "accent": "cyan",
    "bar": "cyan",
    "good_block": "bold green",
    "quiet_block": "bold",
    "warn_block": "bold reverse yellow",
    "bad_block": "bold reverse red",
    "cursor": "reverse",
}
"""In words that Rich understands too."""

ATTRIBUTES = {"bold": "1", "dim": "2", "reverse": "7"}
COLOURS = {"red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def sgr(style: StyleName, *, colour: bool) -> str:
    """The parameters of ECMA-48's SGR sequence for ``style``; empty for plain text."""
    known = {**ATTRIBUTES, **(COLOURS if colour else {})}
    return ";".join(known[word] for word in LOOK[style].split() if word in known)
