"""What every screen looks like, in every state of a run, at three sizes."""

from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest

from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.ascii import ascii_only
from rankscope.tui.dashboard.render.line import text_of, width_of
from rankscope.tui.dashboard.screens.base import Room, Screen
from rankscope.tui.dashboard.screens.evidence import EvidenceScreen
from rankscope.tui.dashboard.screens.help import HelpScreen
from rankscope.tui.dashboard.screens.overview import OverviewScreen
from rankscope.tui.dashboard.screens.rank import RankScreen
from rankscope.tui.dashboard.screens.ranks import RanksScreen
from support.scenes import SCENES, detail_of, fleet
from support.screens import ODD_SIZES, SIZES, kept, sheet

GOLDEN = Path(__file__).parent / "golden"

OVERVIEWS = [("overview", scene) for scene in SCENES]
OTHERS = [
    (screen, scene)
    for screen in ("ranks", "rank", "evidence")
    for scene in ("starting", "healthy-8", "dead", "failed", "fleet-512")
]
MORE = [
    ("help", "healthy-2"),
    ("rank", "never-reached"),
    ("evidence", "stalled"),
    ("evidence", "raised"),
    ("rank", "raised"),
    ("ranks", "recording"),
]
CASES = [*OVERVIEWS, *OTHERS, *MORE]


def make(name: str) -> Screen:
    made: dict[str, Screen] = {
        "overview": OverviewScreen(),
        "ranks": RanksScreen(),
        "rank": RankScreen(2),
        "evidence": EvidenceScreen(),
        "help": HelpScreen(),
    }
    return made[name]


@cache
def picture(scene: str) -> Picture:
    snapshot = SCENES[scene]()
    row = next(
        (row for row in (snapshot.status.ranks if snapshot.status else []) if row.rank == 2), None
    )
    detail = None if row is None else detail_of(row)
    return Picture(replace(snapshot, rank=detail), title="20261129-163000-k3f9ab")


def drawn(screen: str, scene: str, width: int, height: int) -> list[str]:
    shown = picture(scene)
    # The scenes were taken at 0 on the local clock; a hub that is away has been so for 4 s.
    now_t_s = 4.0 if shown.snapshot.link == "away" else 0.0
    lines = make(screen).layout(shown, Room(width, height, now_t_s)).lines(height)
    return [text_of(line) for line in lines]


@pytest.mark.parametrize(("screen", "scene"), CASES)
def test_a_screen_looks_as_it_should(screen: str, scene: str, write_golden: bool) -> None:
    """Each screen, in each state that concerns it, is as it was when it was last looked at."""
    text = sheet(partial(drawn, screen, scene))
    kept(GOLDEN / f"{screen}-{scene}.txt", text, write_golden)


@pytest.mark.parametrize(("screen", "scene"), CASES)
@pytest.mark.parametrize(("width", "height"), [*SIZES, *ODD_SIZES, (79, 24)])
def test_no_line_is_wider_than_the_terminal(
    screen: str, scene: str, width: int, height: int
) -> None:
    """However small the terminal, a screen neither fails nor overflows it."""
    shown = picture(scene)
    lines = make(screen).layout(shown, Room(width, height, 0.0)).lines(height)
    assert len(lines) <= height
    assert max(map(width_of, lines)) <= width


@pytest.mark.parametrize("scene", ["dead", "stopped", "stalled", "failed", "starting", "healthy-8"])
@pytest.mark.parametrize(("width", "height"), [(40, 10), (60, 15), (80, 24)])
@pytest.mark.parametrize("screen", ["overview", "ranks", "rank", "evidence", "help"])
def test_the_verdict_is_on_every_screen_at_every_size(
    screen: str, scene: str, width: int, height: int
) -> None:
    """A narrow or low terminal loses columns and lines, never the verdict."""
    words = {
        "dead": "✗ STALLED",
        "stopped": "✗ RANK-STOPPED",
        "stalled": "✗ STALLED",
        "failed": "✗ FAILED",
        "starting": "◌ starting",
        "healthy-8": "✓ healthy",
    }
    assert words[scene] in drawn(screen, scene, width, height)[1]


@pytest.mark.parametrize("scene", SCENES)
def test_ascii_keeps_every_cell_in_its_place(scene: str) -> None:
    """Without UTF-8 the same screen is drawn, cell for cell, and no glyph is lost."""
    for line in drawn("overview", scene, 80, 24):
        plain = ascii_only(line)
        assert plain.isascii()
        assert len(plain) == len(line)
        assert plain.count("?") == line.count("?")  # that of help, and of a rank that is unknown


def test_sixteen_thousand_ranks_fit_on_a_small_terminal() -> None:
    """The grid of 16,384 ranks scrolls, and its last line can be reached."""
    shown = Picture(fleet(16_384))
    screen = OverviewScreen()
    room = Room(80, 24, 0.0)
    first = [text_of(line) for line in screen.layout(shown, room).lines(24)]
    assert any("16383 at work" in line for line in first)
    screen.move("down", shown, room)
    screen.move("last", shown, room)
    last = [text_of(line) for line in screen.layout(shown, room).lines(24)]
    assert "16320" in "\n".join(last)
    assert last[1] == first[1]
