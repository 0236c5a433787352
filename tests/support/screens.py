"""What every screen is held to: it fits its terminal, needs no UTF-8, and looks as it did."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rankscope.tui.dashboard.render.ascii import ascii_only
from rankscope.tui.dashboard.render.line import Line, text_of, width_of

SIZES = ((80, 24), (120, 40), (200, 50))
"""Of the golden documents."""

ODD_SIZES = ((1, 1), (20, 5), (40, 10), (60, 15), (300, 12))


def fitted(lines: Sequence[Line], width: int, height: int) -> list[str]:
    """The text of ``lines``, which fit a terminal of that size."""
    assert len(lines) <= height
    assert max(map(width_of, lines), default=0) <= width
    return [text_of(line) for line in lines]


def sheet(drawn: Callable[[int, int], list[str]]) -> str:
    """A screen in all sizes of the golden documents; ``drawn`` gives its lines."""
    parts = []
    for width, height in SIZES:
        lines = "\n".join(line.rstrip() for line in drawn(width, height))
        parts.append(f"{f' {width}×{height} ':=^{width}}\n{lines}\n")
    return "".join(parts)


def kept(path: Path, text: str, write: bool) -> None:
    """``text`` is that of the golden document; ``write``: from now on."""
    if write:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def needs_no_utf8(lines: list[str]) -> None:
    """Every glyph has a stand-in of one cell."""
    for line in lines:
        plain = ascii_only(line)
        assert len(plain) == len(line)
        assert "?" not in plain.replace("? help", "")
