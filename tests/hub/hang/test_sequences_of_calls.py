"""What comes next in a rank's own course, and what is remembered of it."""

from rankscope.hub.state.habits import UNKNOWN, expected
from rankscope.hub.state.operations import KEPT, Operations, Window
from rankscope.protocol import messages as m
from support.collectives import STEP, TOKENS, Job
from support.world import World


def test_the_course_of_a_step_repeats() -> None:
    """What followed the longest equal stretch is what is expected."""
    assert expected([1, 2, 3] * 4) == 1
    assert expected([*([1, 2, 3] * 4), 1]) == 2
    assert expected([*([1, 2, 2, 3] * 4), 1, 2]) == 2


def test_a_rare_collective_is_expected_where_it_came_before() -> None:
    """An evaluation every fourth step is part of the course once it was seen."""
    course = [*([1, 2] * 4), 9, *([1, 2] * 4)]
    assert expected(course) == 9


def test_too_little_tells_nothing() -> None:
    """A first step, or a course without any repetition, allows no guess."""
    assert expected([]) == UNKNOWN
    assert expected([1, 2, 3]) == UNKNOWN
    assert expected(list(range(40))) == UNKNOWN


def test_gaps_agree_with_anything_and_count_for_nothing() -> None:
    """Where only some of the calls are known, those known must agree."""
    full = [1, 2, 3] * 4
    gaps = [1, UNKNOWN, UNKNOWN] * 3
    assert expected([*full, *gaps, 1]) == 2
    assert expected([UNKNOWN] * 40) == UNKNOWN


def test_a_window_forgets_its_oldest_and_fills_gaps() -> None:
    """Pieces that come in any order make one stretch of bounded length."""
    window = Window(5, [], [])
    for seq in (5, 6, 9, 7):
        window.put(seq, seq, UNKNOWN)
    assert [window.at(seq) for seq in range(4, 11)] == [-1, 5, 6, 7, -1, 9, -1]
    for seq in range(10, 10 + 2 * KEPT):
        window.put(seq, 1, UNKNOWN)
    assert len(window.signatures) == len(window.sources) == KEPT
    assert window.end == 10 + 2 * KEPT


def test_point_to_point_calls_are_no_part_of_the_course() -> None:
    """They have numbers of their own."""
    operations = Operations()
    told = tuple(
        m.Operation("0", 1, name, "[1]", "float32", "completed")
        for name in ("gloo:send", "gloo:recv")
    )
    operations.told(m.Operations(0, 0, 1, 0.0, "asked", (), told), 1.0)
    assert operations.windows[0] == {}


def test_a_group_that_is_made_anew_begins_anew() -> None:
    """Numbers that start again are another group of the same name."""
    job = Job(World(ranks=2)).steps(3).operations(0)
    assert job.world.state.operations.at(0, "0", len(STEP)) is not None
    job.entered[0]["0"], job.completed[0]["0"] = 1, 1
    job.statuses(0)
    assert job.world.state.operations.at(0, "0", 1) is None


def test_the_ordinary_course_is_learnt_once_it_repeats() -> None:
    """The first and the last rank are asked for their collectives after some steps."""
    job = Job(World(ranks=4)).steps(2)
    job.world.replies()
    job.steps(4)
    asked = [message for _, message in job.world.replies() if isinstance(message, m.Inquire)]
    assert {one.rank for one in asked if "operations" in one.what} == {0, 3}


def test_the_log_tells_a_notice_again_when_it_becomes_a_hang() -> None:
    """What was opened as a mere notice is opened again as critical, under the same id."""
    job = Job(World(ranks=2)).steps(6)
    job.enters(TOKENS, ranks=(0,)).hang(4.0)
    entries = job.world.core.know.incidents.shown
    assert [(entry.event, entry.finding.severity) for entry in entries] == [
        ("opened", "info"),
        ("opened", "critical"),
    ]
    assert len({entry.id for entry in entries}) == 1
