"""The one widget: it shows lines and sends the terminal only what changed in them.

Textual's compositor sends each changed stretch of a line from the widget's left edge on. Where
nothing else is on the screen the canvas therefore writes the cells that differ by itself
(:func:`~.patch.patch`); in every other case it leaves drawing to Textual. What it needs of
Textual's inside is in :meth:`Canvas._writer` and :meth:`Canvas._forget_drawn`, and nowhere else.
"""

import os
from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from rankscope.tui.dashboard.render.line import BLANK, Line, plain
from rankscope.tui.dashboard.render.look import LOOK
from rankscope.tui.dashboard.widgets.patch import Pen, cells, patch

STYLES = {name: Style.parse(definition) for name, definition in LOOK.items()}


class Canvas(Widget):
    """Shows :class:`Line` s from the top; nothing a terminal could act upon gets through."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; }"

    def __init__(self, *, utf8: bool = True) -> None:
        super().__init__()
        self._lines: list[Line] = []
        self._utf8 = utf8
        self._colour = "NO_COLOR" not in os.environ
        self._dim = True
        self._drawn_size: tuple[int, int] | None = None
        """The size at which Textual has drawn this last; None before it has."""

    def look(self, *, colour: bool, dim: bool) -> None:
        """Whether colours and faint text are used, from the next picture on."""
        self._colour = colour and "NO_COLOR" not in os.environ
        self._dim = dim

    def show(self, lines: Sequence[Line]) -> None:
        """Replace what is shown."""
        before, self._lines = self._lines, list(lines)
        write = self._writer()
        if write is None:
            self._refresh_changed(before)
            return
        width, height = self.size
        pen = Pen(utf8=self._utf8, colour=self._colour, dim=self._dim)
        text = patch(before, self._lines, width, height, pen)
        if text:
            self._forget_drawn()
            write(text)

    def _refresh_changed(self, before: Sequence[Line]) -> None:
        """Let Textual draw what differs."""
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
        self._drawn_size = (self.size.width, self.size.height)
        line = self._lines[y] if y < len(self._lines) else BLANK
        segments = [Segment(plain(span.text), STYLES[span.style]) for span in line]
        return Strip(segments).adjust_cell_length(self.size.width)

    def _writer(self) -> Callable[[str], None] | None:
        """Writes to the terminal, in order with what Textual writes; None when it may not.

        Only while this widget is all there is to see, and was drawn by Textual at its size.
        """
        app, driver = self.app, self.app._driver
        if driver is None or app.is_headless or len(app.screen_stack) != 1:
            return None
        if self._drawn_size != (self.size.width, self.size.height):
            return None
        if any(child is not self and child.size.area for child in self.screen.children):
            return None
        return driver.write

    def _forget_drawn(self) -> None:
        """Textual keeps the lines it has drawn; they are not what is shown any more."""
        self._styles_cache.clear()


def changed_span(old: Line, new: Line, width: int) -> tuple[int, int]:
    """First and one past the last column in which two lines differ.

    Lines with characters that are not one cell wide count as changed as a whole.
    """
    before, after = cells(old, width), cells(new, width)
    if before is None or after is None:
        return 0, width
    start = 0
    while start < width and before[start] == after[start]:
        start += 1
    end = width
    while end > start and before[end - 1] == after[end - 1]:
        end -= 1
    return start, end
