"""A run that stands still and nobody knows why: where its ranks are, and what to type."""

import msgspec
import pytest

from rankscope.protocol.exits import Exit
from rankscope.protocol.shapes import Incidents, RankRow
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import text_of
from rankscope.tui.dashboard.render.verdict import verdict_lines
from rankscope.tui.dashboard.screens.base import Room
from rankscope.tui.dashboard.screens.evidence import EvidenceScreen
from rankscope.tui.text.check import check_line, judge
from rankscope.tui.text.incidents import incidents_text
from rankscope.tui.text.output import untoned
from rankscope.tui.text.status import status_text
from rankscope.tui.words.stall import next_step, odd_one, standings
from rankscope.tui.words.verdict import verdict
from support.scenes import STOPPED, row, run


def rows(*phases: tuple[str, float]) -> list[RankRow]:
    return [row(rank, "vm", phase=p, phase_s=s) for rank, (p, s) in enumerate(phases)]


@pytest.mark.parametrize(
    ("found", "odd"),
    [
        (rows(("backward", 42.0), ("data", 43.0), ("backward", 42.0)), 1),
        (rows(("backward", 42.0), ("backward", 42.0), ("other", 1.0)), 2),
        (rows(("backward", 40.0), ("backward", 44.0)), 1),
        (rows(("backward", 40.0), ("data", 44.0)), 1),
        (rows(("backward", 42.0), ("backward", 42.0)), 0),
        (rows(("ended", 90.0), ("backward", 42.0)), 1),
        ([], None),
    ],
)
def test_the_rank_to_look_at_is_the_odd_one_or_the_one_longest_in_its_phase(
    found: list[RankRow], odd: int | None
) -> None:
    """Fewest in its phase first; then the longest; one that ended is no candidate."""
    chosen = odd_one(found)
    assert (None if chosen is None else chosen.rank) == odd


def test_ranks_are_grouped_by_phase_with_the_longest_age() -> None:
    """The odd ones come first."""
    found = standings(rows(("backward", 42.0), ("data", 43.0), ("backward", 41.0)))
    assert [each.text for each in found] == [
        "rank 1 in data for 43 s",
        "ranks 0 2 in backward for up to 42 s",
    ]


def test_no_step_is_made_up_where_no_process_is_known() -> None:
    """Without a pid there is nothing to type."""
    assert next_step([row(0, "vm", pid=None)]) == ""
    assert next_step([]) == ""


STUCK = {0: {"phase": "backward", "phase_s": 42.0}, 1: {"phase": "data", "phase_s": 43.0}}


def shown() -> dict[str, str]:
    snapshot = run(2, 2, gpu=False, state="stalled", stalled_s=42.0, rows=STUCK)
    assert snapshot.status is not None
    assert snapshot.overview is not None
    layout = EvidenceScreen().layout(Picture(snapshot), Room(100, 24, 0.0))
    return {
        "status": "\n".join(map(untoned, status_text(snapshot.status, snapshot.overview))),
        "evidence": "\n".join(text_of(each) for each in layout.lines(24)),
    }


@pytest.mark.parametrize("view", ["status", "evidence"])
def test_a_stall_without_a_finding_leaves_a_trace(view: str) -> None:
    """Where each rank stands and the command for the one to look at."""
    text = shown()[view]
    for words in (
        "rank 1 in data for 43 s",
        "rank 0 in backward for 42 s",
        "py-spy dump --pid 4701 on node-a",
    ):
        assert words in text


def test_the_incident_log_does_not_hide_a_stall() -> None:
    """Without a finding there is no entry; the run is not well all the same."""
    snapshot = run(2, 2, gpu=False, state="stalled", stalled_s=42.0, rows=STUCK)
    (said,) = incidents_text(Incidents(incidents=[]), snapshot.status)
    assert "stalled for 42 s" in said
    assert incidents_text(Incidents(incidents=[]), run(2, 2).status) == ["no incident so far"]


def test_a_stall_that_a_finding_explains_keeps_to_the_finding() -> None:
    """Its own next step counts."""
    snapshot = run(2, 2, state="stalled", stalled_s=42.0, rows=STUCK, findings=[STOPPED])
    assert snapshot.status is not None
    assert snapshot.overview is not None
    text = "\n".join(map(untoned, status_text(snapshot.status, snapshot.overview)))
    assert "py-spy" not in text
    assert "kill -CONT" in text
    bare = msgspec.structs.replace(snapshot.status, verdict=None, findings=[], ranks=[])
    assert "next" not in "\n".join(map(untoned, status_text(bare, snapshot.overview)))


def test_a_stall_that_a_notice_may_explain_names_whom_it_suspects() -> None:
    """As a suspicion, before it is known: in the headline, and with its own next step."""
    notice = msgspec.structs.replace(
        STOPPED,
        kind="gil-held",
        severity="info",
        headline="rank 0 holds the GIL and is mute in backward of step 13",
        next="see its native stack: py-spy dump --native --pid 4700 (on node-a)",
    )
    snapshot = run(2, 2, state="stalled", stalled_s=42.0, rows=STUCK, findings=[notice])
    assert snapshot.status is not None
    assert snapshot.overview is not None
    picture = Picture(snapshot)
    texts = {
        "status": "\n".join(map(untoned, status_text(snapshot.status, snapshot.overview))),
        "dashboard": "\n".join(map(text_of, verdict_lines(picture, 100, 0.0))),
    }
    for text in texts.values():
        assert "STALLED 42 s   suspected: rank 0 holds the GIL and is mute" in text
        assert "py-spy dump --native --pid 4700" in text
        assert "pid 4701" not in text
    assert check_line(snapshot.status)[0].count("suspected: rank 0") == 1
    assert (
        "42 s and suspected is: rank 0 holds" in incidents_text(Incidents([]), snapshot.status)[0]
    )
    assert judge(snapshot.status) == Exit.PROBLEM
    moving = verdict(state="running", finding=notice, stalled_s=None, step=12, healthy_s=120.0)
    assert moving.line() == "✓ healthy   no finding for 2 min"


def test_a_paused_run_says_so_whatever_else_is_found() -> None:
    """Why it does not move comes first; what was found is beside it."""
    for severity in ("warning", "critical"):
        found = msgspec.structs.replace(STOPPED, kind="checkpoint-failed", severity=severity)
        said = verdict(state="paused", finding=found, stalled_s=None, step=12)
        assert said.head == "paused, CHECKPOINT-FAILED"
        assert said.text == found.headline


def test_a_notice_explains_no_stall() -> None:
    """Something small that is also known must not hide where the ranks stand."""
    notice = msgspec.structs.replace(STOPPED, severity="info")
    snapshot = run(2, 2, state="stalled", stalled_s=42.0, rows=STUCK, findings=[notice])
    assert snapshot.status is not None
    assert snapshot.overview is not None
    text = "\n".join(map(untoned, status_text(snapshot.status, snapshot.overview)))
    assert "py-spy dump --pid 4701" in text
