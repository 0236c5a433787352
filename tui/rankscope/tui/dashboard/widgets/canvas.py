"""The one widget: it shows lines and sends the terminal only what changed in them."""

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from rankscope.tui.dashboard.render.line import BLANK, Line, plain, text_of, width_of
from rankscope.tui.dashboard.render.look import LOOK

STYLES = {name: Style.parse(definition) for name, definition in LOOK.items()}


class Canvas(Widget):
    """Shows :class:`Line` s from the top; nothing a terminal could act upon gets through."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; }"

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[Line] = []

    def show(self, lines: Sequence[Line]) -> None:
        """Replace what is shown."""
        before, self._lines = self._lines, list(lines)
        width, height = self.size
        regions = []
        for y in range(min(height, max(len(before), len(self._lines)))):
            old = before[y] if y < len(before) else BLANK
            new = self._lines[y] if y < len(self._lines) else BLANK
            if old != new:
                start, end = changed_span(old, new, width)
                if end > start:
                    regions.append(Region(start, y, end - start, 1))
        if regions:
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        line = self._lines[y] if y < len(self._lines) else BLANK
        segments = [Segment(plain(span.text), STYLES[span.style]) for span in line]
        return Strip(segments).adjust_cell_length(self.size.width)


def changed_span(old: Line, new: Line, width: int) -> tuple[int, int]:
    """First and one past the last column in which two lines differ.

    Lines with characters that are not one cell wide count as changed as a whole.
    """
    before, after = _cells(old, width), _cells(new, width)
    if before is None or after is None:
        return 0, width
    start = 0
    while start < width and before[start] == after[start]:
        start += 1
    end = width
    while end > start and before[end - 1] == after[end - 1]:
        end -= 1
    return start, end


def _cells(line: Line, width: int) -> list[tuple[str, str]] | None:
    if len(text_of(line)) != width_of(line):
        return None
    cells: list[tuple[str, str]] = [(char, span.style) for span in line for char in span.text]
    return cells[:width] + [(" ", "")] * (width - len(cells))
