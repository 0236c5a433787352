"""The same screens on a terminal without UTF-8: one ASCII character for each glyph.

Widths stay as they are, so nothing else needs to know. What the printed text uses for a glyph is
used here too, where it is one character.
"""

from functools import lru_cache

from rich.cells import cell_len

from rankscope.tui.words.marks import TO_ASCII

_SHARED = {chr(code): text for code, text in TO_ASCII.items() if len(text) == 1}
GLYPHS = _SHARED | {
    "…": "~",
    "±": "~",
    "°": " ",
    "○": "o",
    "→": ">",
    "←": "<",
    "↑": "^",
    "↓": "v",
    "▸": ">",
    "◀": "<",
    "▲": "^",
    "│": "|",
    "’": "'",
    "“": '"',
    "”": '"',
    "—": "-",
    "▔": "-",
    "🔎": "/ ",
    "━": "=",
    "×": "x",
    "░": ".",
    "▒": "+",
    "▓": "#",
    "▁": "_",
    "▂": ".",
    "▃": "-",
    "▄": "~",
    "▅": "=",
    "▆": "+",
    "▇": "#",
    "█": "#",
}


@lru_cache(maxsize=4096)
def ascii_only(text: str) -> str:
    """``text`` in ASCII, cell for cell; a character without a stand-in is a question mark."""
    if text.isascii():
        return text
    text = text.replace(" ±", "+-")  # two cells as well; ``~4`` would be about four
    return "".join(
        char if char.isascii() else GLYPHS.get(char, "?" * cell_len(char)) for char in text
    )
