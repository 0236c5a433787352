"""Moving through time: where one is in a recording, and when it is live."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.protocol.shapes import Moment, Recording, Severity
from rankscope.tui.feed.playhead import BEHIND_S, SPEEDS, Playhead, next_moment_s
from rankscope.tui.feed.timesource import NO_PAST, TimeSource

FIRST_S, LAST_S = 1000.0, 1100.0


class Clock:
    def __init__(self) -> None:
        self.now_t_s = 5.0

    def __call__(self) -> float:
        return self.now_t_s


def moment(at_s: float, severity: Severity = "critical") -> Moment:
    return Moment(at_s=at_s, severity=severity, kind="rank-dead", headline="rank 2 died")


def recording(*moments: Moment, growing: bool = False, last_s: float = LAST_S) -> Recording:
    return Recording(first_s=FIRST_S, last_s=last_s, growing=growing, moments=list(moments))


@pytest.fixture
def clock() -> Clock:
    return Clock()


def at(times: TimeSource, recorded: Recording) -> float:
    past = times.where(recorded)
    assert past is not None
    return past.at_s


def test_a_paused_playhead_stays_where_it_is() -> None:
    """Time goes on outside, and not in a paused recording."""
    assert Playhead(1050.0, 5.0).position_s(99.0) == 1050.0


def test_a_played_recording_goes_on_at_its_speed() -> None:
    """Four times as fast, four seconds a second; a change of speed begins where it is."""
    head = Playhead(1000.0, 5.0, playing=True, speed=4.0)
    assert head.position_s(7.0) == 1008.0
    slower = head.paced(-1, 7.0)
    assert (slower.position_s(7.0), slower.speed) == (1008.0, 2.0)


@given(st.lists(st.sampled_from([1, -1]), max_size=30))
def test_speeds_have_ends(steps: list[int]) -> None:
    """However often one asks for more or less, it stays among the known speeds."""
    head = Playhead(0.0, 0.0)
    for step in steps:
        head = head.paced(step, 0.0)
        assert head.speed in SPEEDS


@given(st.floats(0, 3000), st.booleans(), st.booleans())
def test_a_playhead_is_kept_within_the_recording(at_s: float, playing: bool, growing: bool) -> None:
    """Neither end can be left, whoever moved it."""
    head = Playhead(at_s, 0.0, playing=playing).kept_to(recording(growing=growing), 0.0)
    assert FIRST_S <= head.position_s(0.0) <= LAST_S


def test_playing_stops_at_the_end_of_what_does_not_grow() -> None:
    """A live run's recording is followed instead."""
    played = Playhead(LAST_S - 1, 0.0, playing=True)
    assert not played.kept_to(recording(), 10.0).playing
    assert played.kept_to(recording(growing=True), 10.0).playing


def test_a_jump_leads_to_just_behind_the_next_grave_moment() -> None:
    """Notices are passed over; where there are only these, they count."""
    moments = [moment(1010.0, "info"), moment(1020.0, "warning"), moment(1030.0)]
    assert next_moment_s(moments, 1000.0, 1) == 1020.0 + BEHIND_S
    assert next_moment_s(moments, 1020.0 + BEHIND_S, 1) == 1030.0 + BEHIND_S
    assert next_moment_s(moments, 1040.0, -1) == 1030.0 + BEHIND_S
    assert next_moment_s(moments, 1030.0 + BEHIND_S, -1) == 1020.0 + BEHIND_S
    assert next_moment_s(moments, 1030.0 + BEHIND_S, 1) is None
    assert next_moment_s(moments[:1], 1000.0, 1) == 1010.0 + BEHIND_S


def test_going_back_from_live_begins_at_what_is_shown(clock: Clock) -> None:
    """Ten seconds before the picture one looks at; forward again ends at the newest."""
    times = TimeSource(can_go_back=True, clock=clock)
    assert not times.wants_past()
    assert times.scrub(-10.0, 1100.0) == ""
    assert at(times, recording(growing=True)) == 1090.0
    times.scrub(-1000.0, None)
    assert at(times, recording(growing=True)) == FIRST_S
    times.scrub(5000.0, None)
    assert at(times, recording(growing=True)) == LAST_S
    times.to_end()
    assert times.is_live
    assert times.where(recording()) is None


def test_live_cannot_go_forward_nor_back_without_a_recording() -> None:
    """Both are said, and nothing changes."""
    times = TimeSource(can_go_back=False)
    assert times.scrub(10.0, 1100.0) == "this is live: there is nothing later"
    assert times.scrub(-10.0, 1100.0) == NO_PAST
    assert "live" in times.pace(1)
    times.toggle()
    assert times.is_live


def test_going_back_before_anything_was_seen_is_refused() -> None:
    """There is no moment to go back from yet."""
    times = TimeSource(can_go_back=True)
    assert "nothing was seen" in times.scrub(-10.0, None)
    assert times.is_live


@pytest.mark.parametrize(
    ("begin", "at_s"),
    [
        ("start", FIRST_S),
        ("end", LAST_S),
        ("incident", 1040.0 + BEHIND_S),
        (30.0, FIRST_S + 30.0),
        (1070.0, 1070.0),
        (999_999.0, LAST_S),
    ],
)
def test_a_replay_begins_where_it_was_told_to(
    begin: str | float, at_s: float, clock: Clock
) -> None:
    """At an end, an incident, seconds from the start, or a time."""
    times = TimeSource(can_go_back=True, live=False, begin=begin, clock=clock)
    assert at(times, recording(moment(990.0), moment(1040.0))) == at_s


def test_a_replay_plays_from_the_start_and_its_end_is_no_live_view(clock: Clock) -> None:
    """End leads to the recording's end, and there is nothing behind that."""
    times = TimeSource(can_go_back=True, live=False, speed=2.0, clock=clock)
    assert at(times, recording()) == FIRST_S
    clock.now_t_s += 3.0
    assert at(times, recording()) == FIRST_S + 6.0
    times.toggle()
    clock.now_t_s += 100.0
    assert at(times, recording()) == FIRST_S + 6.0
    times.to_end()
    assert times.wants_past()
    assert at(times, recording()) == LAST_S


def test_without_an_incident_a_jump_says_so(clock: Clock) -> None:
    """It stays where it was."""
    times = TimeSource(can_go_back=True, live=False, begin="end", clock=clock)
    at(times, recording())
    assert times.jump(1, None) == ""
    assert at(times, recording(moment(1010.0))) == LAST_S
    assert times.take_notice() == "no incident after this"
    assert times.take_notice() == ""
    times.jump(-1, None)
    assert at(times, recording(moment(1010.0))) == 1010.0 + BEHIND_S


def test_a_recording_that_cannot_be_read_leads_back_to_live() -> None:
    """And the reason is said once."""
    times = TimeSource(can_go_back=True)
    times.scrub(-10.0, 1100.0)
    assert times.fail("cannot replay run x: no")
    assert times.is_live
    assert times.take_notice() == "cannot replay run x: no"
    replayed = TimeSource(can_go_back=True, live=False)
    assert not replayed.fail("gone")
    assert replayed.wants_past()
