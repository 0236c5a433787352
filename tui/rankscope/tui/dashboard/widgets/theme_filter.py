"""Other looks than the usual one, made by changing styles on their way to the terminal."""

from typing import Literal

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

Theme = Literal["colour", "strong", "plain"]

THEMES: dict[Theme, str] = {
    "colour": "colours",
    "strong": "strong colours, nothing dim",
    "plain": "no colours",
}
"""In the order in which ``t`` goes through them. Attributes such as bold and reverse stay."""

NOT_DIM = Style(dim=False)


def following(theme: Theme) -> Theme:
    names = list(THEMES)
    return names[(names.index(theme) + 1) % len(names)]


class ThemeFilter(LineFilter):
    """Applies to all widgets. ``colour`` leaves everything as it is."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if self._theme == "colour":
            return segments
        change = _not_dim if self._theme == "strong" else _plain
        return [
            Segment(text, None if style is None else change(style), control)
            for text, style, control in segments
        ]


def _not_dim(style: Style) -> Style:
    return style + NOT_DIM if style.dim else style


def _plain(style: Style) -> Style:
    return style.without_color
