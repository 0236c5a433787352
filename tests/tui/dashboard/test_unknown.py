"""What is shown while nobody knows how the run is: how old it is, and that it is old."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from rankscope.protocol.exits import UserError
from rankscope.tui.dashboard.action import SCREENS as ALL_SCREENS
from rankscope.tui.dashboard.action import ScreenName
from rankscope.tui.dashboard.actions import ACTIONS
from rankscope.tui.dashboard.navigation import Navigation
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.age import seen, word_age_s
from rankscope.tui.dashboard.render.line import text_of, width_of
from rankscope.tui.dashboard.render.title import control_lines, title_line
from rankscope.tui.dashboard.screens.base import Room, Screen
from rankscope.tui.dashboard.screens.evidence import EvidenceScreen
from rankscope.tui.dashboard.screens.offers import (
    HUB_AWAY,
    HUB_GONE,
    HUB_SILENT,
    LOCKED,
    idle,
    offered,
)
from rankscope.tui.dashboard.screens.overview import OverviewScreen
from rankscope.tui.dashboard.screens.rank import RankScreen
from rankscope.tui.dashboard.screens.ranks import RanksScreen
from rankscope.tui.feed.playhead import Past
from rankscope.tui.feed.poller import Snapshot
from rankscope.tui.words import numbers
from rankscope.tui.words.blame import UNKNOWN as UNKNOWN_MARK
from support import control
from support.inprocess import Link, board
from support.scenes.making import HUB_S, detail_of
from support.scenes.runs import away, dead, healthy_8
from support.scenes.unknown import SCENES, unheard
from support.world import World

GOLDEN = Path(__file__).parent / "golden"
SCREENS = [name for name in ALL_SCREENS if name not in ("rank", "help", "runs")]
"""The list of runs and the help are not of this run."""
SIZES = ((80, 24), (120, 40), (200, 50))
MAKE = {
    "overview": OverviewScreen,
    "ranks": RanksScreen,
    "rank": lambda: RankScreen(2),
    "evidence": EvidenceScreen,
}
CASES = [
    *(("overview", scene) for scene in SCENES),
    *((screen, "gone-stalled") for screen in ("ranks", "rank", "evidence")),
    ("rank", "gone"),
]


def drawn(screen: str, scene: str, width: int, height: int) -> list[str]:
    make, now_t_s = SCENES[scene]
    snapshot = make()
    assert snapshot.status is not None
    row = next(row for row in snapshot.status.ranks if row.rank == 2)
    shown = Picture(replace(snapshot, rank=detail_of(row)), title="20261129-163000-k3f9ab")
    shown = seen(shown, now_t_s)
    made: Screen = MAKE[screen]()
    lines = made.layout(shown, Room(width, height, now_t_s)).lines(height)
    assert max(map(width_of, lines)) <= width
    return [text_of(line) for line in lines]


@pytest.mark.parametrize(("screen", "scene"), CASES)
def test_a_screen_looks_as_it_should(screen: str, scene: str, write_golden: bool) -> None:
    """Each screen is as it was when it was last looked at."""
    parts = []
    for width, height in SIZES:
        lines = "\n".join(line.rstrip() for line in drawn(screen, scene, width, height))
        parts.append(f"{f' {width}×{height} ':=^{width}}\n{lines}\n")
    text = "".join(parts)
    path = GOLDEN / f"{screen}-{scene}.txt"
    if write_golden:
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def picture(make: Callable[[], Snapshot], now_t_s: float) -> Picture:
    return seen(Picture(make(), title="run-1"), now_t_s)


UNKNOWN = [(make, now_t_s) for make, now_t_s in SCENES.values() if make is not unheard]
UNKNOWN += [(away, 4.0), (lambda: replace(dead(), link="away", error="nobody listens"), 4.0)]


@pytest.mark.parametrize("name", [*SCREENS, "rank"])
@pytest.mark.parametrize(("make", "now_t_s"), UNKNOWN)
@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 12)])
def test_what_is_old_looks_old_and_says_how_old_it_is(
    name: ScreenName, make: Callable[[], Snapshot], now_t_s: float, width: int, height: int
) -> None:
    """On every screen: when it was true and how long ago, and nothing below the head shines."""
    shown = picture(make, now_t_s)
    navigation = Navigation()
    if name == "rank":
        navigation.open(0)
    else:
        navigation.go(name)
    lines = navigation.screen.layout(shown, Room(width, height, now_t_s)).lines(height)
    title, verdict = text_of(lines[0]), text_of(lines[1])
    assert "as of 16:01:45" in title
    assert verdict.startswith(("  ○ HUB SILENT ", "  ○ NO HUB "))
    assert "last known:" in verdict
    rules = [at for at, each in enumerate(lines) if set(text_of(each).strip()) == {"─"}]
    body = [span for each in lines[rules[0] + 1 : -1] for span in each if span.text.strip()]
    assert {span.style for span in body} <= {"dim", "cursor"}


@pytest.mark.parametrize(("make", "now_t_s"), UNKNOWN)
def test_what_is_old_grows_older_by_the_clock_of_whoever_looks(
    make: Callable[[], Snapshot], now_t_s: float
) -> None:
    """Without any news from a hub, which cannot tell it."""
    for later_s in (0.0, 30.0, 600.0):
        shown = picture(make, now_t_s + later_s)
        age = numbers.age(word_age_s(shown, now_t_s + later_s))
        head = OverviewScreen().layout(shown, Room(80, 24, now_t_s + later_s)).lines(24)
        assert age in text_of(head[0])
        assert age in text_of(head[1])
        table = RanksScreen().layout(shown, Room(160, 40, now_t_s + later_s)).lines(40)
        row = next(text_of(each) for each in table if " ?  unknown" in text_of(each))
        heard_s = shown.rows[0].heard_s
        assert heard_s is not None
        assert f" {numbers.age(heard_s + word_age_s(shown, now_t_s + later_s))}" in row


@pytest.mark.parametrize(("make", "now_t_s"), UNKNOWN)
def test_of_a_rank_nothing_is_claimed_but_that_it_has_ended(
    make: Callable[[], Snapshot], now_t_s: float
) -> None:
    """Whatever it was called before: a sign, a word and a tone of their own."""
    before, shown = Picture(make()), picture(make, now_t_s)
    for rank in range(8):
        row = before.rows[rank]
        if row.process == "ended":
            assert shown.mark(rank).word == "SIGKILL"
        else:
            assert shown.mark(rank) == UNKNOWN_MARK
    assert sum(shown.tally.values()) == 8
    assert [shown.mark(rank) for rank in range(8)] == shown.marks_of(list(range(8)))


@pytest.mark.parametrize("name", ["overview", "checkpoints"])
@pytest.mark.parametrize(("make", "now_t_s"), UNKNOWN)
@pytest.mark.parametrize("locked", ["", LOCKED])
def test_nothing_that_needs_the_hub_is_offered_without_one(
    name: ScreenName, make: Callable[[], Snapshot], now_t_s: float, locked: str
) -> None:
    """Neither in the footer nor by its key, which says what would help."""
    shown = picture(make, now_t_s)
    room = Room(80, 24, now_t_s, locked=locked)
    navigation = Navigation()
    navigation.go(name)
    controls = [action for action in ACTIONS if action.group == "control"]
    assert not set(controls) & set(offered(navigation.screen, shown, room, 5))
    whys = {idle(action, navigation.screen, shown, room) for action in controls}
    assert len(whys) == 1
    assert whys.pop() in (HUB_AWAY, HUB_GONE, HUB_SILENT)


def test_a_restart_is_promised_only_where_nobody_listens() -> None:
    """A hub that takes connections and is silent is there: what restarts hubs does nothing."""
    room, navigation = Room(80, 24, 4.0, locked=""), Navigation()
    control = next(action for action in ACTIONS if action.group == "control")
    for silent, why in ((False, HUB_AWAY), (True, HUB_SILENT)):
        shown = seen(Picture(replace(away(), silent=silent)), 4.0)
        assert idle(control, navigation.screen, shown, room) == why


def test_a_picture_that_was_frozen_or_is_of_the_past_stays_as_it_was() -> None:
    """It is meant to stand still, and says so itself."""
    frozen = seen(replace(Picture(healthy_8()), frozen_t_s=0.0), 600.0)
    past = Past(HUB_S, HUB_S - 60, HUB_S, growing=True, playing=False, speed=1.0)
    of_past = seen(Picture(replace(healthy_8(), past=past)), 600.0)
    for shown in (frozen, of_past):
        assert not shown.unknown
        assert shown.mark(0).word == "backward"


def test_a_question_that_was_open_when_the_hub_went_is_not_answered_with_a_command() -> None:
    """``y`` sends nothing then, and says why."""

    world = World(ranks=2).step()
    for rank in (0, 1):
        control.controlled(world, rank)
    world.tick()

    async def play() -> None:
        async with board(world, size=(100, 30), unlocked=True) as desk:
            await desk.sees("healthy", "unlocked")
            await desk.press("P")
            await desk.sees("Pause the run?")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Link, "ask", _nobody)
                await desk.sees("NO HUB", "it would be refused")
                given: list[str] = []
                patch.setattr(Link, "command", lambda *_, **__: given.append("sent"))
                await desk.press("y")
                await desk.sees("pause was not given", "takes no command")
                assert not given
            await desk.sees("healthy", "unlocked")

    asyncio.run(play())


@pytest.mark.parametrize(("age_s", "live"), [(0.3, True), (1.2, False), (2.4, False)])
def test_before_a_hub_is_silent_it_is_said_that_it_has_not_answered(
    age_s: float, live: bool
) -> None:
    """What is not known is not called live."""
    snapshot = healthy_8()
    now_t_s = snapshot.taken_t_s + age_s
    shown = text_of(title_line(picture(lambda: snapshot, now_t_s), 80, now_t_s))
    assert ("● live" in shown) == live
    assert (f"◌ asking {age_s} s" in shown) == (not live)


def test_a_hub_that_is_not_asked_is_not_called_silent() -> None:
    """The recording may take long to open; until then nothing is asked of the live hub."""
    opened = threading.Event()

    def slowly() -> Link:
        assert opened.wait(60.0)
        raise UserError("there is no recording")

    async def play() -> None:
        async with board(World(ranks=2).step(), size=(100, 30)) as desk:
            await desk.sees("healthy")
            app = desk.app
            app._poller.times.can_go_back = True
            app._poller._connect_past = slowly
            try:
                await desk.press("left_square_bracket")
                await desk.sees("opening the recording")
                app._picture = replace(
                    app._picture,
                    snapshot=replace(app._picture.snapshot, taken_t_s=time.monotonic() - 60.0),
                )
                app.draw()
                assert "opening the recording" in desk.text()
                assert "HUB" not in desk.text()
                assert "unknown" not in desk.text()
            finally:
                opened.set()
            await desk.sees("healthy", "live")

    asyncio.run(play())


def _nobody(*_: object, **__: object) -> NoReturn:
    raise UserError("nobody listens")


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_a_hub_that_is_there_and_silent_is_not_called_gone(silent: bool, first: bool) -> None:
    """Neither before its first word nor after its last, in the title and in the verdict."""
    status = None if first else dead().status
    snapshot = replace(dead(), status=status, replay=False, link="away", error="", silent=silent)
    if first:
        snapshot = replace(snapshot, overview=None, hub_s=None)
    shown = picture(lambda: snapshot, 4.0)
    lines = Navigation().screen.layout(shown, Room(80, 24, 4.0)).lines(24)
    title, verdict = text_of(lines[0]), text_of(lines[1])
    assert ("HUB SILENT" in verdict) is silent
    assert ("NO HUB" in verdict) is not silent
    assert ("hub silent" in title) is silent
    assert ("no hub" in title) is not silent


@pytest.mark.parametrize("width", [80, 120])
def test_a_request_that_was_in_work_is_only_what_was_known_last(width: int) -> None:
    """The ranks may have followed it long ago, or gone on from their pause."""
    snapshot = away()
    assert snapshot.status is not None
    text = "pending: rank 1 has not heard of it"
    status = msgspec.structs.replace(snapshot.status, control=text)
    known = replace(snapshot, status=status)
    for shown, told in (
        (replace(known, link="up"), f"▸ {text}"),
        (known, f"▸ last known: {text}"),
    ):
        (line,) = control_lines(Picture(shown), width)
        assert text_of(line).strip() == told
