"""The screens and texts of collectives and stacks."""

from functools import partial
from pathlib import Path

import msgspec
import pytest

from rankscope.tui.dashboard.navigation import Navigation
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.screens.base import Room
from rankscope.tui.feed.poller import Wanted
from rankscope.tui.text.collectives import collectives_text
from rankscope.tui.text.output import untoned
from rankscope.tui.text.stacks import stacks_text
from support.scenes.hangs import MANY_STACKS, MISSING_GROUPS, SCENES, STACKS
from support.screens import ODD_SIZES, fitted, kept, needs_no_utf8, sheet

GOLDEN = Path(__file__).parent / "golden"


def drawn(scene: str, width: int, height: int) -> list[str]:
    picture = Picture(SCENES[scene](), title="20261129-163000-k3f9ab")
    navigation = Navigation()
    navigation.go("stacks" if scene.startswith("stacks") else "collectives")
    lines = navigation.screen.layout(picture, Room(width, height, 0.0)).lines(height)
    return fitted(lines, width, height)


@pytest.mark.parametrize("scene", SCENES)
def test_the_screen_looks_as_it_should(scene: str, write_golden: bool) -> None:
    """Each state is drawn as it was when it was last looked at."""
    kept(GOLDEN / f"{scene}.txt", sheet(partial(drawn, scene)), write_golden)


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize(("width", "height"), ODD_SIZES)
def test_it_fits_every_terminal(scene: str, width: int, height: int) -> None:
    """However small or wide, no line is wider than the terminal."""
    drawn(scene, width, height)


@pytest.mark.parametrize("scene", SCENES)
def test_it_needs_no_utf8(scene: str) -> None:
    """Every glyph has a stand-in of one cell."""
    needs_no_utf8(drawn(scene, 80, 24))


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


@pytest.mark.parametrize(("ended", "words"), [(False, "1.2 s ago"), (True, "1.2 s before its end")])
def test_of_a_run_that_is_over_a_stack_says_how_long_before_its_end(
    ended: bool, words: str
) -> None:
    """Not how long ago it was, which grows."""
    view = msgspec.structs.replace(STACKS, ended=ended)
    shown = "\n".join(map(untoned, stacks_text(view, 80)))
    assert f"read by the sentinel, {words}" in shown
