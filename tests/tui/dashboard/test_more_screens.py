"""Screens of steps, incidents, checkpoints and runs: what they look like, and moving in them."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest

from rankscope.tui.dashboard.action import ScreenName
from rankscope.tui.dashboard.navigation import Navigation
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import text_of
from rankscope.tui.dashboard.render.stacks import stack_lines
from rankscope.tui.dashboard.screens.base import Room, Screen
from rankscope.tui.dashboard.screens.offers import LOCKED
from rankscope.tui.dashboard.screens.runs import RunsScreen
from rankscope.tui.feed.poller import Wanted
from support.scenes import HUB_S, hangs, pages
from support.scenes.pages import SCENES, watch
from support.screens import ODD_SIZES, fitted, kept, needs_no_utf8, sheet

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def _times_are_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log shows local times; a test must not depend on where it runs."""
    from time import gmtime

    monkeypatch.setattr("rankscope.tui.words.incidents.time.localtime", gmtime)


def screen_of(scene: str) -> Screen:
    name: ScreenName = scene.partition("-")[0]  # type: ignore[assignment]
    if name == "runs":
        return RunsScreen(watch(), lambda: HUB_S)
    navigation = Navigation()
    if name != "overview":
        navigation.go(name)
    return navigation.screen


def picture(scene: str) -> Picture:
    return Picture(SCENES[scene](), title="20261129-163000-k3f9ab", readonly=False)


def drawn(scene: str, width: int, height: int) -> list[str]:
    room = Room(width, height, 0.0, locked=LOCKED)
    lines = screen_of(scene).layout(picture(scene), room).lines(height)
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
    needs_no_utf8(drawn(scene, 120, 40))


@pytest.mark.parametrize("scene", SCENES)
def test_the_verdict_and_the_way_to_its_evidence_are_on_it(scene: str) -> None:
    """Also at 80 columns, and beside a pause or a save."""
    lines = drawn(scene, 80, 24)
    status = picture(scene).status
    assert status is not None
    if status.verdict is not None:
        head = lines[1:4]
        assert any("STALLED" in line or status.verdict.kind in line for line in head)
        assert any("v evidence" in line for line in head)
    else:
        assert any(word in lines[1] for word in ("healthy", "paused", "stopped"))


def test_each_screen_asks_for_its_view() -> None:
    """What a screen draws is asked for while it is shown, of the rank that is selected."""
    shown = picture("steps-late")
    wanted = {
        "steps": Wanted("steps", 5),
        "incidents": Wanted("incidents"),
        "checkpoints": Wanted("checkpoints"),
        "runs": None,
    }
    for scene in ("steps-late", "incidents-many", "checkpoints-saving", "runs-many"):
        screen = screen_of(scene)
        assert screen.view_wanted(shown) == wanted[screen.name]


def test_the_late_rank_is_on_top_and_selected() -> None:
    """Who looks for a straggler finds it without a key."""
    shown = picture("steps-late")
    screen = screen_of("steps-late")
    assert screen.selected(shown) == 5
    lines = drawn("steps-late", 120, 40)
    first = next(line for line in lines if line.startswith(" ▸"))
    assert "5" in first
    assert "late in data 33×" in first
    assert "▒" in first or "▓" in first


def test_odd_steps_are_marked_below_their_course_and_named() -> None:
    """A NaN and a slow step are seen at their place, and read in words."""
    lines = drawn("steps-odd", 200, 50)
    loss = next(at for at, line in enumerate(lines) if line.startswith("  loss"))
    assert "✗" in lines[loss]
    assert lines[loss + 1].index("✗") == lines[loss].index("✗")
    assert "step 12 475: loss nan" in lines[loss + 1]
    text = "\n".join(lines)
    assert "step 12 451 took 720 ms, usual 163 ms" in text


def test_incidents_are_listed_once_with_how_long_they_lasted() -> None:
    """The newest on top, an open one with its age, a closed one with its length."""
    lines = drawn("incidents-many", 120, 40)
    rows = [line for line in lines if "SIGKILL at step" in line or "slow in data" in line]
    assert "open 42 s" in rows[1]  # the first is the verdict
    assert any("260 s" in row or "4 min" in row for row in rows)


def test_a_filter_leaves_out_what_it_does_not_admit() -> None:
    """In each list by what is written there, in that of ranks by number."""
    shown = picture("incidents-many")
    screen = screen_of("incidents-many")
    screen.filter = "straggler closed"
    text = "\n".join(
        text_of(line) for line in screen.layout(shown, Room(120, 40, 0.0)).lines(40)[3:]
    )
    assert "slow in data" in text
    assert "asked for a checkpoint" not in text
    late = screen_of("steps-late")
    late.filter = "2-3"
    rows = [
        text_of(line) for line in late.layout(picture("steps-late"), Room(120, 40, 0.0)).lines(40)
    ]
    assert sum("● on time" in row for row in rows) == 2
    runs = screen_of("runs-many")
    runs.filter = "wide"
    assert runs.layout(shown, Room(120, 40, 0.0)).count == 1


def test_enter_on_a_run_opens_the_selected_one() -> None:
    """The first at first; then as one moves."""
    shown = picture("runs-many")
    screen = screen_of("runs-many")
    room = Room(80, 24, 0.0)
    assert screen.opens(shown) == pages.RUNS[0].path
    screen.move("down", shown, room)
    assert screen.opens(shown) == pages.RUNS[1].path
    assert screen.copied(shown) == pages.RUNS[1].run
    screen.move("last", shown, room)
    assert screen.opens(shown) == pages.RUNS[-1].path


def test_commands_that_would_be_refused_say_why_beforehand() -> None:
    """On the screen of checkpoints, in the hub's words."""
    text = "\n".join(drawn("checkpoints-none", 120, 40))
    assert "not now: rank 0 gave no boundary" in text
    assert "none yet: what the run has done so far would be lost" in text


def test_a_save_names_its_slowest_rank_and_how_long_it_takes() -> None:
    """In one line above the bars, and at the rank itself."""
    lines = drawn("checkpoints-saving", 120, 40)
    text = "\n".join(lines)
    assert "slowest is rank 7" in text
    assert "about 9 s left" in text
    assert "writing, slowest" in next(line for line in lines if line.startswith("        7"))


@pytest.mark.parametrize(
    "words", ["20261129-163000", "~/runs/a-long-folder/20261129-163000-k3f9ab"]
)
def test_the_command_that_shows_all_frames_is_whole(words: str) -> None:
    """On a line of its own where it does not fit behind what it is for."""
    group = hangs.MANY_STACKS.groups[0]
    deep = msgspec.structs.replace(group, frames=group.frames * 20)
    view = msgspec.structs.replace(hangs.MANY_STACKS, groups=[deep])
    shown = Picture(replace(SCENES["checkpoints-healthy"](), run_words=words))
    lines = [text_of(each) for each in stack_lines(view, shown, 80)]
    command = f"rankscope stacks {words} --rank {group.ranks[0]}"
    assert any(each.rstrip().endswith(command) for each in lines), lines
