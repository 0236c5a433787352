"""Terminals without UTF-8: one ASCII sign for each glyph."""

import ast
from collections.abc import Iterator
from pathlib import Path

import rankscope.tui
from rankscope.tui.dashboard.render.ascii import GLYPHS, ascii_only


def shown(tree: ast.AST) -> Iterator[str]:
    """The strings in a source that are no docstrings."""
    remarks = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    for node in constants:
        if isinstance(node.value, str) and id(node) not in remarks:
            yield node.value


def test_around_a_mean_stays_plus_and_minus() -> None:
    """In as many cells; ``~4`` would be about four."""
    assert ascii_only("step 482 ±44 ms") == "step 482+-44 ms"


def test_every_glyph_that_is_drawn_has_a_sign_of_its_own() -> None:
    """A question mark looks like broken output."""
    sources = list(Path(rankscope.tui.__path__[0]).rglob("*.py"))
    assert len(sources) > 100
    used = {
        char
        for source in sources
        for text in shown(ast.parse(source.read_text()))
        for char in text
        if not char.isascii() and char.isprintable()
    }
    assert {"✓", "▲", "◀"} <= used
    assert sorted(used - set(GLYPHS)) == []
    assert "?" not in ascii_only("".join(used))
