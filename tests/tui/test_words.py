"""Numbers, marks and the verdict in words."""

import math

import msgspec
import pytest

from rankscope.protocol.shapes import Collectives, Finding, State
from rankscope.tui.text.check import check_line
from rankscope.tui.text.output import untoned
from rankscope.tui.words import groups, numbers
from rankscope.tui.words.marks import Tone, plain, rank_mark, safe
from rankscope.tui.words.verdict import Verdict, verdict
from support.samples import FINDING, ROW, SHAPES, STATUS


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "0.2 s"),
        (9.96, "9 s"),
        (42.4, "42 s"),
        (38 * 60, "38 min"),
        (2 * 3600 + 14 * 60, "2 h 14 min"),
        (3 * 86400 + 4 * 3600, "3 d 4 h"),
        (-0.3, "0.0 s"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_an_age_is_told_in_the_unit_people_use(seconds: float | None, words: str) -> None:
    """Seconds, minutes, hours or days; a clock that ran backwards gives no negative age."""
    assert numbers.age(seconds) == words


@pytest.mark.parametrize(
    ("function", "value", "words"),
    [
        (numbers.count, 9999, "9999"),
        (numbers.count, 12480, "12 480"),
        (numbers.clock, 42, "0:42"),
        (numbers.clock, 8047, "2:14:07"),
        (numbers.clock, 86400 + 3600, "1 d 01:00:00"),
        (numbers.span, 61e-6, "61.0 µs"),
        (numbers.span, 0.163, "163 ms"),
        (numbers.span, 1.25, "1.25 s"),
        (numbers.digits3, 6.131, "6.13"),
        (numbers.digits3, 9.999, "10.0"),
        (numbers.digits3, 613.4, "613"),
        (numbers.si, 201_000.0, "201 k"),
        (numbers.si, 999.7, "1.00 k"),
        (numbers.si, 12.0, "12"),
        (numbers.size_bytes, 41_200_000_000, "41.2 GB"),
        (numbers.size_bytes, 600_000_000, "600 MB"),
        (numbers.size_bytes, 12, "12 B"),
        (numbers.loss, 2.31414, "2.3141"),
        (numbers.loss, math.nan, "nan"),
        (numbers.loss, 1.2e6, "1.2e+06"),
        (numbers.norm, 0.823, "0.82"),
        (numbers.norm, -math.inf, "-inf"),
        (numbers.ranks, [2], "rank 2"),
        (numbers.ranks, [7, 0, 1, 2], "ranks 0-2 7"),
        (numbers.ranks, [], "no rank"),
        (numbers.milliseconds, 0.0004, "0.4"),
    ],
)
def test_numbers_read_as_people_write_them(function: object, value: object, words: str) -> None:
    """Thousands apart, three digits that count, decimal bytes, the protocol's non-finite words."""
    assert callable(function)
    assert function(value) == words


def say(state: State, finding: Finding | None = None, **more: object) -> Verdict:
    given = {"stalled_s": None, "step": 12, **more}
    return verdict(state=state, finding=finding, **given)  # type: ignore[arg-type]


def test_the_verdict_of_a_healthy_run_says_for_how_long() -> None:
    """No finding: healthy, and since when."""
    assert say("running", healthy_s=38 * 60.0).line() == "✓ healthy   no finding for 38 min"


def test_a_rank_outside_of_training_s_phases_is_at_work() -> None:
    """Its phase is told beside; what it says of itself goes before."""
    outside = msgspec.structs.replace(ROW, phase="other", process="alive", link="up", ended="")
    assert rank_mark(outside).word == "at work"
    saving = msgspec.structs.replace(outside, expecting="evaluation")
    assert rank_mark(saving).word == "evaluation"


def test_nothing_is_called_healthy_that_was_not_heard_of_for_long() -> None:
    """What was well may be so no more; what is known to be wrong stays so."""
    unheard = say("running", healthy_s=120.0, unheard_s=4.9)
    assert unheard.line() == "○ not known for 4.9 s   was healthy, no finding for 2 min"
    assert (unheard.tone, unheard.known) == ("warn", False)
    assert say("running", healthy_s=120.0, unheard_s=1.0).known
    assert say("stalled", stalled_s=42.0, unheard_s=4.9).head == "STALLED 42 s"
    assert say("running", FINDING, unheard_s=4.9).head == "RANK-DEAD"
    assert say("finished", unheard_s=4.9).head == "finished"
    quiet = [msgspec.structs.replace(row, heard_s=9.0) for row in STATUS.ranks]
    status = msgspec.structs.replace(STATUS, state="running", verdict=None, ranks=quiet)
    assert "not known for 9.0 s" in untoned(check_line(status)[0])


def test_the_verdict_of_a_hurt_run_is_its_gravest_finding() -> None:
    """The finding's own headline, its evidence underneath."""
    found = say("failed", FINDING)
    assert found.line() == "✗ FAILED   rank 2 died: SIGKILL at step 13, in backward"
    assert found.tone == "bad"
    assert found.more == tuple(FINDING.evidence)


def test_a_run_whose_end_nobody_heard_finished_at_a_step_or_later() -> None:
    """The step that is known is the last that was heard of."""
    unheard = "the last words of rank 1 were not heard"
    said = say("finished", step=62, exit_code=0, ending=unheard).text
    assert said == f"at step 62 or later: {unheard}, exit code 0"
    assert say("finished", step=62, exit_code=0).text == "at step 62, exit code 0"


def test_a_notice_does_not_make_a_run_unwell() -> None:
    """A finding of severity info leaves the verdict healthy."""
    notice = msgspec.structs.replace(FINDING, severity="info")
    assert say("running", notice).tone == "good"


def test_a_stalled_run_says_how_long() -> None:
    """Also without a finding that explains it."""
    assert say("stalled", stalled_s=42.0).head == "STALLED 42 s"
    assert say("stalled", FINDING, stalled_s=42.0).head == "STALLED 42 s"


@pytest.mark.parametrize(
    ("changes", "word", "tone"),
    [
        ({}, "SIGKILL", "bad"),
        ({"ended": "exit 0"}, "exit 0", "quiet"),
        ({"process": "stopped", "link": "up"}, "stopped", "bad"),
        ({"process": "alive", "link": "down"}, "down", "bad"),
        ({"process": "alive", "link": "silent"}, "silent", "warn"),
        ({"process": "alive", "link": "up"}, "backward", "good"),
    ],
)
def test_a_rank_has_one_mark_for_its_gravest_state(
    changes: dict[str, str], word: str, tone: Tone
) -> None:
    """How it ended comes before stopped, stopped before a lost link, that before its phase."""
    mark = rank_mark(msgspec.structs.replace(ROW, **changes))
    assert (mark.word, mark.tone) == (word, tone)


def test_an_ascii_terminal_gets_ascii() -> None:
    """Every glyph has a stand-in where the output is not UTF-8."""
    assert plain("✗ STALLED 42 s – ‖g‖ ±4 µs", utf8=False) == "X STALLED 42 s - |g| +-4 us"
    assert plain("✗", utf8=True) == "✗"


def test_control_characters_from_outside_do_not_reach_the_terminal() -> None:
    """A host name or an error text cannot move the cursor or start an escape."""
    assert safe("node\x1b[2J\n\r\x9b1m") == "node [2J   1m"


@pytest.mark.parametrize(
    ("behind", "waiting", "told"),
    [
        ([1], [0], "rank 1 behind, rank 0 waits"),
        ([0], [1], "rank 0 behind, rank 1 waits"),
        ([5], [0, 1, 2], "rank 5 behind, 3 wait"),
        ([1, 2], [0, 3], "ranks 1-2 behind, 2 wait"),
        ([], [4], "rank 4 waits"),
        ([], [], "together"),
    ],
)
def test_of_a_group_it_is_said_who_waits(behind: list[int], waiting: list[int], told: str) -> None:
    """One rank by its number; of several, how many."""
    view = SHAPES["collectives"]
    assert isinstance(view, Collectives)
    row = msgspec.structs.replace(view.groups[0], behind=behind, waiting=waiting)
    assert groups.state(row) == told
