"""What each style name looks like: attributes and the terminal's own sixteen colours.

The user's palette decides what red is, light or dark; and sixteen colours take half the bytes.
"""

from rich.style import Style

from rankscope.tui.dashboard.render.line import StyleName

LOOK: dict[StyleName, Style] = {
    "": Style(),
    "dim": Style(dim=True),
    "strong": Style(bold=True),
    "good": Style(color="green"),
    "warn": Style(color="yellow", bold=True),
    "bad": Style(color="red", bold=True),
    "accent": Style(color="cyan"),
    "bar": Style(color="cyan"),
    "good_block": Style(color="green", bold=True),
    "quiet_block": Style(bold=True),
    "warn_block": Style(color="yellow", bold=True, reverse=True),
    "bad_block": Style(color="red", bold=True, reverse=True),
    "cursor": Style(reverse=True),
}
