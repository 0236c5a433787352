"""A screen as a picture: SVG of the same lines that a terminal shows."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from rankscope.tui.dashboard.render.line import Line, StyleName, plain, width_of
from rankscope.tui.dashboard.render.look import LOOK

CELL_WIDTH, CELL_HEIGHT, FONT_SIZE = 8.43, 17.0, 14.0
"""Pixels; a monospaced font is 0.602 of its size wide."""
MARGIN = 10.0
BACKGROUND, FOREGROUND = "#10151c", "#d5dbe3"
COLOURS = {
    "red": "#ff6b6b",
    "green": "#6fd08c",
    "yellow": "#f2c14e",
    "cyan": "#5ec4d6",
}
FONTS = "ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace"


def svg(lines: Sequence[Line], columns: int, title: str) -> str:
    """``lines`` of at most ``columns`` cells as one SVG document; ``title`` is its description."""
    width = 2 * MARGIN + columns * CELL_WIDTH
    height = 2 * MARGIN + len(lines) * CELL_HEIGHT
    rows = "".join(_row(line, y) for y, line in enumerate(lines))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'role="img" aria-label="{escape(title, {chr(34): "&quot;"})}" '
        f'font-family="{FONTS}" font-size="{FONT_SIZE:.0f}" xml:space="preserve">'
        f'<rect width="100%" height="100%" rx="6" fill="{BACKGROUND}"/>{rows}</svg>\n'
    )


def _row(line: Line, y: int) -> str:
    """One line: a rectangle behind what is reversed, and text at its column."""
    parts: list[str] = []
    x = 0
    for span in line:
        cells = width_of(span.text)
        text = plain(span.text)
        if text.strip() or _reversed(span.style):
            parts.append(_span(text, span.style, x, y, cells))
        x += cells
    return "".join(parts)


def _reversed(style: StyleName) -> bool:
    return "reverse" in LOOK[style].split()


def _span(text: str, style: StyleName, x: int, y: int, cells: int) -> str:
    words = LOOK[style].split()
    colour = next((COLOURS[word] for word in words if word in COLOURS), FOREGROUND)
    left = MARGIN + x * CELL_WIDTH
    top = MARGIN + y * CELL_HEIGHT
    behind = ""
    if "reverse" in words:
        behind = (
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{cells * CELL_WIDTH:.1f}" '
            f'height="{CELL_HEIGHT:.0f}" fill="{colour}"/>'
        )
        colour = BACKGROUND
    bold = ' font-weight="bold"' if "bold" in words else ""
    dim = ' opacity="0.6"' if "dim" in words else ""
    # Blanks at the ends take no room of their own: the text begins at its first sign.
    inner = text.strip()
    start = left + (len(text) - len(text.lstrip())) * CELL_WIDTH
    return behind + (
        f'<text x="{start:.1f}" y="{top + 0.78 * CELL_HEIGHT:.1f}" '
        f'textLength="{width_of(inner) * CELL_WIDTH:.1f}" fill="{colour}"{bold}{dim}>'
        f"{escape(inner)}</text>"
        if inner
        else ""
    )
