"""The picture that stands while Textual is still being loaded."""

import pyte
import pytest

from rankscope.tui.dashboard.first_paint import escapes
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import Span, line, text_of
from rankscope.tui.dashboard.screens.base import Room
from rankscope.tui.dashboard.screens.overview import OverviewScreen
from support.scenes import SCENES


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("colour", [True, False])
def test_the_first_picture_is_the_overview(scene: str, colour: bool) -> None:
    """What a terminal makes of the bytes is the overview, line for line: nothing jumps."""
    lines = OverviewScreen().layout(Picture(SCENES[scene]()), Room(80, 24, 0.0)).lines(24)
    screen = pyte.Screen(80, 24)
    pyte.Stream(screen).feed(escapes(lines, utf8=True, colour=colour))
    assert [row.rstrip() for row in screen.display] == [text_of(each).rstrip() for each in lines]


def test_it_is_ascii_where_it_must_be_and_acts_on_nothing() -> None:
    """Glyphs have stand-ins, and an escape in a host name stays harmless."""
    text = escapes([line(Span("● node\x1b[2J-a", "good"))], utf8=False, colour=False)
    assert text.endswith("* node [2J-a")
    assert text.isascii()
