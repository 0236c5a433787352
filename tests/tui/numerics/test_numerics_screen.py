"""The screen of numerics: the origin with its evidence, every rank over time, its parameters."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from rankscope.protocol.shapes import Numerics
from rankscope.tui.dashboard.navigation import Navigation
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import text_of
from rankscope.tui.dashboard.screens.base import Room
from rankscope.tui.dashboard.screens.numerics import NumericsScreen
from rankscope.tui.feed.poller import Wanted
from support import scenes
from support.scenes.numerics import SCENES
from support.screens import ODD_SIZES, fitted, kept, needs_no_utf8, sheet

GOLDEN = Path(__file__).parent / "golden"


def drawn(scene: str, width: int, height: int) -> list[str]:
    picture = Picture(SCENES[scene](), title="20261129-163000-k3f9ab")
    lines = NumericsScreen().layout(picture, Room(width, height, 0.0)).lines(height)
    return fitted(lines, width, height)


@pytest.mark.parametrize("scene", SCENES)
def test_the_screen_looks_as_it_should(scene: str, write_golden: bool) -> None:
    """Each state of a run's numbers is drawn as it was when it was last looked at."""
    # But for the footer, which tells of all screens.
    text = sheet(lambda width, height: drawn(scene, width, height)[:-1])
    kept(GOLDEN / f"{scene}.txt", text, write_golden)


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize(("width", "height"), ODD_SIZES)
def test_it_fits_every_terminal(scene: str, width: int, height: int) -> None:
    """However small or wide, no line is wider than the terminal."""
    drawn(scene, width, height)


@pytest.mark.parametrize("scene", SCENES)
def test_it_needs_no_utf8(scene: str) -> None:
    """Every glyph has a stand-in of one cell."""
    needs_no_utf8(drawn(scene, 80, 24))


def test_the_culprit_is_selected_and_its_parameters_are_asked_for() -> None:
    """Until a rank is selected by hand, it is the one to blame, and it stands on top."""
    screen = NumericsScreen()
    picture = Picture(SCENES["nan"]())
    assert screen.view_wanted(picture) == Wanted("numerics", 5)
    screen.move("up", picture, Room(80, 24, 0.0))
    assert screen.view_wanted(picture) == Wanted("numerics", 5)
    screen.move("down", picture, Room(80, 24, 0.0))
    assert screen.view_wanted(picture) == Wanted("numerics", 0)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_that_large_gradients_take_turns_stands_on_the_screen(width: int, height: int) -> None:
    """In a line of its own, whichever rank is selected; none where all are read."""
    snapshot = SCENES["healthy"]()
    view = snapshot.view
    assert isinstance(view, Numerics)
    rows = [msgspec.structs.replace(row, large_every=8) for row in view.ranks]
    turns = replace(snapshot, view=msgspec.structs.replace(view, ranks=rows))
    for one, expected in ((snapshot, 0), (turns, 1)):
        lines = NumericsScreen().layout(Picture(one), Room(width, height, 0.0)).lines(height)
        told = "large gradients take turns, read at every 8th step on ranks 0-7"
        assert [text_of(line).strip() for line in lines].count(told) == expected


def test_another_screens_view_is_not_mistaken_for_its_own() -> None:
    """The answer to the last screen's question may come after the screen has changed."""
    picture = Picture(scenes.healthy_8())
    lines = NumericsScreen().layout(picture, Room(80, 24, 0.0)).lines(24)
    assert "✓ healthy" in text_of(lines[1])


def test_4_leads_to_it_and_escape_back() -> None:
    """It is a screen with a digit."""
    navigation = Navigation()
    shown = []
    navigation.go("numerics")
    shown.append(navigation.screen.name)
    navigation.go_back()
    shown.append(navigation.screen.name)
    assert shown == ["numerics", "overview"]
