"""The last stage before the terminal where it shows no UTF-8: everything becomes ASCII."""

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from rankscope.tui.dashboard.render.ascii import ascii_only


class AsciiFilter(LineFilter):
    """Applies to all widgets, Textual's own command palette among them."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(ascii_only(text), style, control) for text, style, control in segments]
