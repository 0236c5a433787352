"""Who is to blame, who is a victim and who waits: the same in `status`, `ranks` and `top`."""

import msgspec
import pytest

from rankscope.protocol import shapes as s
from rankscope.tui.dashboard.navigation import Navigation
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.detail import detail_lines
from rankscope.tui.dashboard.render.line import text_of
from rankscope.tui.dashboard.render.nodes import node_details
from rankscope.tui.dashboard.screens.base import Room
from rankscope.tui.dashboard.screens.ranks import RanksScreen
from rankscope.tui.feed.poller import Snapshot
from rankscope.tui.text.output import untoned
from rankscope.tui.text.ranks import ranks_text
from rankscope.tui.text.status import status_text
from rankscope.tui.words.blame import marks_of
from support.scenes import SCENES, WAITS, detail_of, finding, run

ENDED: dict[str, object] = {"phase": "ended", "process": "ended", "link": "down"}
EARLY = finding("rank-dead", [1], [0], "rank 1 died: exit 0 before its training was over")
KILLED = finding("rank-dead", [1], [0], "rank 1 died: SIGKILL at step 12481, in backward")
ASKED = finding("run-interrupted", [], [0, 1], "run was ended by SIGINT", severity="warning")
STOPPED = finding("rank-stopped", [1], [0], "rank 1 is stopped")
SILENT = finding("link-lost", [1], [], "rank 1 is alive but not answering", severity="warning")


def two(
    findings: list[s.Finding], first: dict[str, object], second: dict[str, object], **more: object
) -> Snapshot:
    return run(2, 2, gpu=False, findings=findings, rows={0: first, 1: second}, **more)  # type: ignore[arg-type]


CASES = {
    "left too early": (
        two([EARLY], {**ENDED, "ended": "exit 1"}, {**ENDED, "ended": "exit 0"}, state="failed"),
        ("■ exit 1", "✗ exit 0"),
    ),
    "killed": (
        two([KILLED], {**ENDED, "ended": "SIGTERM"}, {**ENDED, "ended": "SIGKILL"}, state="failed"),
        ("■ SIGTERM", "✗ SIGKILL"),
    ),
    "interrupted": (
        two([ASKED], {**ENDED, "ended": "SIGINT"}, {**ENDED, "ended": "SIGINT"}, state="failed"),
        ("■ SIGINT", "■ SIGINT"),
    ),
    "stopped": (
        two([STOPPED], WAITS, {"process": "stopped"}),
        ("◌ waiting", "◐ stopped"),
    ),
    "stalled": (
        two([], WAITS, {**WAITS, "phase": "other"}, state="stalled"),
        ("◌ waiting", "◌ waiting"),
    ),
    "suspected": (two([SILENT], {}, {}), ("● backward", "! suspect")),
    "well": (two([], {}, {}), ("● backward", "● backward")),
}


@pytest.mark.parametrize("case", CASES)
def test_every_view_says_the_same_of_a_rank(case: str) -> None:
    """One glyph and one word a rank, in the text as on the screen."""
    snapshot, expected = CASES[case]
    status, overview = snapshot.status, snapshot.overview
    assert status is not None
    assert overview is not None
    marks = marks_of(status)
    assert tuple(f"{marks[rank].glyph} {marks[rank].word}" for rank in (0, 1)) == expected
    assert Picture(snapshot).marks == marks
    table = [untoned(line) for line in ranks_text(status)]
    grid = next(
        line for line in map(untoned, status_text(status, overview)) if line.startswith("  node-a")
    )
    for rank, words in enumerate(expected):
        assert words in table[1 + rank]
        assert f"{rank} {words if marks[rank].tone in ('bad', 'warn') else words[0]}" in grid


@pytest.mark.parametrize("scene", SCENES)
def test_the_text_has_the_marks_of_the_screen_in_every_state(scene: str) -> None:
    """Each scene that has ranks: the table's states are the dashboard's."""
    snapshot = SCENES[scene]()
    if snapshot.status is None:
        return
    marks = marks_of(snapshot.status)
    lines = [untoned(line) for line in ranks_text(snapshot.status)[1:]]
    for row, line in zip(snapshot.status.ranks, lines, strict=True):
        assert f"{marks[row.rank].glyph} {marks[row.rank].word}" in line


@pytest.mark.parametrize("screen", ["overview", "ranks"])
def test_the_first_press_of_next_trouble_leads_to_the_one_to_blame(screen: str) -> None:
    """Its victims come after it, whatever their numbers."""
    picture = Picture(CASES["stopped"][0])
    navigation = Navigation()
    navigation.go(screen)  # type: ignore[arg-type]
    seen = []
    for _ in range(3):
        assert navigation.trouble(picture)
        seen.append(navigation.screen.selected(picture))
    assert seen == [1, 0, 1]


def test_next_trouble_says_when_there_is_none() -> None:
    """A key that does nothing without a word looks broken."""
    assert not Navigation().trouble(Picture(CASES["well"][0]))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("stopped", "holds up rank 0"),
        ("killed", "took rank 0 with it"),
        ("interrupted", "hit ranks 0-1"),
    ],
)
def test_what_a_finding_did_to_others_is_said_in_the_right_tense(case: str, words: str) -> None:
    """A run that is over holds nobody up; without a culprit nobody does."""
    snapshot, _ = CASES[case]
    assert snapshot.status is not None
    assert snapshot.overview is not None
    text = "\n".join(map(untoned, status_text(snapshot.status, snapshot.overview)))
    assert words in text
    if case != "stopped":
        assert "holds up" not in text


def test_a_rank_held_up_is_told_since_when() -> None:
    """The text has what the screen has: kind, culprit, victims, since when."""
    snapshot, _ = CASES["stopped"]
    assert snapshot.status is not None
    assert snapshot.overview is not None
    text = "\n".join(map(untoned, status_text(snapshot.status, snapshot.overview)))
    assert "rank-stopped   rank 1   holds up rank 0   for 42 s" in text


def test_a_run_that_was_told_to_end_did_not_fail_by_itself() -> None:
    """Ctrl-C and a scheduler's SIGTERM are no failure of the training."""
    snapshot, _ = CASES["interrupted"]
    assert snapshot.status is not None
    assert snapshot.overview is not None
    text = "\n".join(map(untoned, status_text(snapshot.status, snapshot.overview)))
    assert "■ INTERRUPTED   run was ended by SIGINT" in text
    assert "FAILED" not in text
    assert "rank-dead" not in text
    hurt = msgspec.structs.replace(snapshot.status, verdict=KILLED, findings=[KILLED])
    assert "✗ FAILED" in "\n".join(map(untoned, status_text(hurt, snapshot.overview)))


SPOILING = finding("nonfinite-gradient", [1], [0], "NaN in the gradient of w on rank 1", step=7)
SAVING = finding("checkpoint-failed", [1], [], "rank 1 could not write", step=7, since_s=30.0)
LATE_NOW = finding("missing-collective", [1], [0], "rank 1 never entered all_reduce #3")


@pytest.mark.parametrize(
    ("found", "phase_s", "told"),
    [
        (SPOILING, 0.1, "rank 1 to blame since step 7"),
        (SAVING, 0.1, "rank 1 to blame since step 7"),
        (LATE_NOW, 42.5, "rank 1 to blame in backward 42 s"),
    ],
)
def test_of_a_culprit_that_goes_on_its_present_phase_is_not_told(
    found: s.Finding, phase_s: float, told: str
) -> None:
    """Nor how long that lasts: it is not where the fault was."""
    snapshot = two([found], {}, {"phase_s": phase_s})
    assert snapshot.overview is not None
    line = node_details(snapshot.overview.nodes[0], Picture(snapshot), 120)
    assert text_of(line).startswith(told)


@pytest.mark.parametrize(
    ("changes", "state", "current"),
    [
        ({}, "running", True),
        ({"phase_s": 2.0, "step_s": 1.0}, "running", True),
        ({"phase_s": 50.0, "step_s": 20.0}, "running", True),
        ({"phase_s": 10.0}, "running", False),
        ({"phase_s": 50.0, "step_s": 10.0}, "running", False),
        ({"heard_s": 10.0}, "running", False),
        ({}, "stalled", False),
        ({}, "paused", False),
        ({**ENDED, "ended": "SIGKILL"}, "running", False),
        ({}, "finished", True),
    ],
)
def test_the_speed_of_a_rank_that_stands_is_not_told_as_its_present_one(
    changes: dict[str, object], state: s.State, current: bool
) -> None:
    """On its page as what it was, in the table not at all; of a run that is over all is past."""
    snapshot = two([], {}, changes, state=state)
    picture = Picture(snapshot)
    page = [text_of(line) for line in detail_lines(1, detail_of(picture.rows[1]), picture, 100, 0)]
    (speed,) = [line for line in page if "tokens/s" in line]
    assert ("was 25.1 k" in speed) is not current
    assert "25.1 k" in speed
    table = RanksScreen().layout(picture, Room(200, 50, 0.0)).lines(50)
    (row,) = [text_of(line) for line in table if text_of(line).split()[:1] == ["1"]]
    assert ("25.1 k" in row) is current


def test_a_rank_that_nobody_has_heard_of_yet_is_not_called_down() -> None:
    """It imports, as far as anybody knows; one that was heard and is not any more is."""
    snapshot = two([], {}, {"heard_s": None, "pid": None, "process": "unknown", "link": "down"})
    assert snapshot.status is not None
    assert marks_of(snapshot.status)[1].word == "not here yet"
    gone = two([], {}, {"heard_s": 9.0, "pid": None, "process": "unknown", "link": "down"})
    assert gone.status is not None
    assert marks_of(gone.status)[1].word == "down"
