"""The screens over the past: what says loudly that it is not live."""

import time
from dataclasses import replace

import pytest

from rankscope.protocol.shapes import Moment
from rankscope.tui.dashboard.control import Control
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import text_of, width_of
from rankscope.tui.dashboard.render.timeline import clock_time, rule_or_timeline
from rankscope.tui.dashboard.render.title import title_line
from rankscope.tui.dashboard.screens.base import Room
from rankscope.tui.dashboard.screens.overview import OverviewScreen
from rankscope.tui.feed.playhead import Past
from support.scenes import SCENES

FIRST_S = 1_764_433_800.0
PAST = Past(
    at_s=FIRST_S + 60.0,
    first_s=FIRST_S,
    last_s=FIRST_S + 120.0,
    growing=True,
    playing=False,
    speed=1.0,
    moments=(
        Moment(at_s=FIRST_S + 90.0, severity="critical", kind="rank-dead", headline="x"),
        Moment(at_s=FIRST_S + 30.0, severity="warning", kind="straggler", headline="x"),
        Moment(at_s=FIRST_S + 10.0, severity="info", kind="checkpoint-slow", headline="x"),
    ),
)


def picture(past: Past = PAST) -> Picture:
    return Picture(replace(SCENES["healthy-8"](), past=past))


def words(line: tuple[object, ...]) -> str:
    return text_of(line)  # type: ignore[arg-type]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 50), (40, 10)])
def test_the_past_is_said_in_the_title_at_every_size(width: int, height: int) -> None:
    """When it is, and that it stands; in a style that is not missed."""
    lines = OverviewScreen().layout(picture(), Room(width, height, 0.0)).lines(height)
    assert f"PAST {clock_time(PAST.at_s)} paused" in words(lines[0])
    assert "live" not in words(lines[0])
    assert any(span.style == "warn_block" for span in lines[0])
    assert max(map(width_of, lines)) <= width


@pytest.mark.parametrize("width", [40, 80, 120])
def test_while_the_recording_is_opened_nobody_is_called_silent(width: int) -> None:
    """The hub is not asked meanwhile: that what is known grows old says nothing of the run."""
    shown = replace(Picture(SCENES["healthy-8"]()), opening=True)
    title = words(title_line(shown, width, 9.0))
    assert "opening the recording" in title
    assert "silent" not in title
    assert width_of(title) <= width


def test_how_long_ago_is_said_of_a_run_that_goes_on() -> None:
    """Of a recording that has ended that would tell nothing."""
    assert "60 s ago" in words(title_line(picture(), 100, 0.0))
    assert "ago" not in words(title_line(picture(replace(PAST, growing=False)), 100, 0.0))


def test_playing_says_how_fast() -> None:
    """And it ages no further by the local clock."""
    fast = replace(PAST, playing=True, speed=4.0)
    assert "playing ×4" in words(title_line(picture(fast), 100, 0.0))
    assert title_line(picture(fast), 100, 0.0) == title_line(picture(fast), 100, 500.0)


def test_the_timeline_shows_the_moment_among_what_happened() -> None:
    """From end to end of the recording, what was grave marked, notices not."""
    text = words(rule_or_timeline(picture(), 100))
    assert text.startswith(f" {clock_time(FIRST_S)} ")
    assert "now" in text
    assert "[ ] { }" in text
    assert text.index("!") < text.index("▲") < text.index("✗")
    track = text[text.index("─") : text.rindex("─") + 1]
    assert track.count("!") == track.count("✗") == track.count("▲") == 1
    # The moment is in the middle of the recording.
    assert abs(track.index("▲") - len(track) / 2) <= 1


def test_live_has_a_plain_rule() -> None:
    """The line is there only for who has gone back."""
    assert set(words(rule_or_timeline(Picture(SCENES["healthy-8"]()), 60)).strip()) == {"─"}


def test_a_recording_of_days_shows_the_day() -> None:
    """A time alone would be ambiguous."""
    long = replace(PAST, last_s=FIRST_S + 3 * 86_400.0)
    day = time.strftime("%m-%d", time.localtime(long.at_s))
    assert f"PAST {day} " in words(title_line(picture(long), 120, 0.0))


def test_a_frozen_picture_says_since_when() -> None:
    """It is not live either."""
    frozen = replace(Picture(SCENES["healthy-8"]()), frozen_t_s=10.0)
    text = words(title_line(frozen, 100, 22.0))
    assert "FROZEN 12 s ago" in text
    assert "live" not in text


@pytest.mark.parametrize("still", [picture(), replace(picture(), frozen_t_s=1.0)])
def test_what_is_not_live_commands_nothing(still: Picture) -> None:
    """Who looks at yesterday must not stop today's run by mistake."""
    control = Control(allowed=True, why_not="", unlocked=True)
    assert "not live" in control.ask("stop", still)
    assert control.question == ""
