"""The screens and texts of collectives and stacks."""

from pathlib import Path

import pytest

from rankscope.tui.dashboard.navigation import Navigation
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.ascii import ascii_only
from rankscope.tui.dashboard.render.line import text_of, width_of
from rankscope.tui.dashboard.screens.base import Room
from rankscope.tui.feed.poller import Wanted
from rankscope.tui.text.collectives import collectives_text
from rankscope.tui.text.output import untoned
from rankscope.tui.text.stacks import stacks_text
from support.hangscenes import MANY_STACKS, MISSING_GROUPS, SCENES, STACKS

GOLDEN = Path(__file__).parent / "golden"
SIZES = ((80, 24), (120, 40), (200, 50))
ODD_SIZES = ((1, 1), (20, 5), (40, 10), (60, 15), (300, 12))


def drawn(scene: str, width: int, height: int) -> list[str]:
    picture = Picture(SCENES[scene](), title="20261129-163000-k3f9ab")
    navigation = Navigation()
    navigation.go("stacks" if scene.startswith("stacks") else "collectives")
    lines = navigation.screen.layout(picture, Room(width, height, 0.0)).lines(height)
    assert len(lines) <= height
    assert max(map(width_of, lines), default=0) <= width
    return [text_of(line) for line in lines]


def kept(path: Path, text: str, write: bool) -> None:
    if write:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("scene", SCENES)
def test_the_screen_looks_as_it_should(scene: str, write_golden: bool) -> None:
    """Each state is drawn as it was when it was last looked at."""
    parts = []
    for width, height in SIZES:
        lines = "\n".join(line.rstrip() for line in drawn(scene, width, height))
        parts.append(f"{f' {width}×{height} ':=^{width}}\n{lines}\n")
    kept(GOLDEN / f"{scene}.txt", "".join(parts), write_golden)


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize(("width", "height"), ODD_SIZES)
def test_it_fits_every_terminal(scene: str, width: int, height: int) -> None:
    """However small or wide, no line is wider than the terminal."""
    drawn(scene, width, height)


@pytest.mark.parametrize("scene", SCENES)
def test_it_needs_no_utf8(scene: str) -> None:
    """Every glyph has a stand-in of one cell."""
    for line in drawn(scene, 80, 24):
        plain = ascii_only(line)
        assert len(plain) == len(line)
        assert "?" not in plain.replace("? help", "")


def test_the_screens_ask_for_their_views() -> None:
    """What a screen draws is asked for while it is shown."""
    navigation = Navigation()
    picture = Picture(SCENES["stacks-missing"]())
    for name in ("collectives", "stacks"):
        navigation.go(name)
        assert navigation.screen.view_wanted(picture) == Wanted(name)


@pytest.mark.parametrize("name", ["stacks", "rank", "many", "collectives"])
def test_the_text_says_the_same(name: str, write_golden: bool) -> None:
    """The commands print what the screens show, the odd rank first."""
    lines = {
        "stacks": lambda: stacks_text(STACKS, 80),
        "rank": lambda: stacks_text(STACKS, 80, 5),
        "many": lambda: stacks_text(MANY_STACKS, 80),
        "collectives": lambda: collectives_text(MISSING_GROUPS, 80),
    }[name]()
    text = "".join(f"{untoned(line)}\n" for line in lines)
    assert max(len(line) for line in text.splitlines()) <= 80
    kept(GOLDEN / f"text-{name}.txt", text, write_golden)
