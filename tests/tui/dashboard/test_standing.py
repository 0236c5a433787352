"""What is kept for all ranks from picture to picture is what one would work out anew."""

from collections import Counter

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.protocol.shapes import Finding, Overview, RankRow, Status
from rankscope.tui.dashboard.picture import Memory, Picture
from rankscope.tui.dashboard.standing import Stand, stand_of
from rankscope.tui.feed.merge import Held, as_came, merge, status_at
from rankscope.tui.feed.poller import Snapshot
from rankscope.tui.words.blame import marks_of
from support.samples import FINDING, OVERVIEW, ROW, STATUS

WORLD = 6
HOSTS = ("node-a", "node-b")

rows = st.builds(
    lambda rank, phase, link, process, host: msgspec.structs.replace(
        ROW, rank=rank, phase=phase, link=link, process=process, host=host, ended=""
    ),
    st.integers(0, WORLD - 1),
    st.sampled_from(("forward", "backward", "ended")),
    st.sampled_from(("up", "silent", "down")),
    st.sampled_from(("alive", "stopped")),
    st.sampled_from(HOSTS),
)
findings = st.builds(
    lambda severity, ranks, victims: msgspec.structs.replace(
        FINDING, severity=severity, ranks=sorted(ranks), victims=sorted(victims)
    ),
    st.sampled_from(("info", "warning", "critical")),
    st.sets(st.integers(0, WORLD - 1), max_size=2),
    st.sets(st.integers(0, WORLD - 1), max_size=3),
)
updates = st.tuples(
    st.lists(rows, max_size=WORLD, unique_by=lambda row: row.rank),
    st.lists(findings, max_size=2),
    st.sampled_from(("running", "stalled")),
)


def snapshot(status: Status, overview: Overview | None) -> Snapshot:
    return Snapshot(status, overview, 0.0, 0.0, "up", "", 0.0)


def stood(status: Status, overview: Overview | None, before: Stand | None) -> Stand:
    """The stand that goes on from ``before``, after it was compared with one made anew."""
    stand = stand_of(status, overview, before)
    anew = stand_of(status, overview, None)
    assert stand.marks == anew.marks
    assert stand.tally == anew.tally
    assert stand.nodes == anew.nodes
    assert stand.order == anew.order
    return stand


@settings(deadline=None)
@given(st.lists(updates, min_size=1, max_size=8))
def test_going_on_from_the_picture_before_changes_nothing(
    given_updates: list[tuple[list[RankRow], list[Finding], str]],
) -> None:
    """Marks, counts and order are the same, however rows and findings came."""
    held: Held | None = None
    before: Stand | None = None
    for number, (changed, found, state) in enumerate(given_updates):
        update = msgspec.structs.replace(
            STATUS,
            ranks=changed,
            full=number == 0,
            findings=found,
            verdict=None,
            state=state,
            world_size=WORLD,
        )
        held = merge(held, update, 100.0 + number)
        status = status_at(held, 100.5 + number)
        before = stood(status, None, before)
        picture = Picture(snapshot(status, None))
        known = marks_of(status)
        here = {row.rank for row in status.ranks}
        assert {rank: picture.mark(rank) for rank in here} == {rank: known[rank] for rank in here}
        assert picture.tally == Counter(picture.mark(rank) for rank in picture.order)


def test_pictures_pass_on_what_they_worked_out() -> None:
    """The second picture has the first one's nodes: they did not change."""
    memory = Memory()
    held = merge(None, msgspec.structs.replace(STATUS, full=True), 100.0)
    first = Picture(snapshot(status_at(held, 100.0), OVERVIEW), memory=memory)
    held = merge(held, msgspec.structs.replace(STATUS, ranks=[ROW], full=False), 101.0)
    second = Picture(snapshot(status_at(held, 101.0), OVERVIEW), memory=memory)
    assert second.nodes is first.nodes or second.nodes == first.nodes
    assert second.order is first.order


def test_rows_that_did_not_come_again_are_the_same_objects() -> None:
    """That is what makes comparing sixteen thousand of them cheap."""
    old = [msgspec.structs.replace(ROW, rank=rank, phase="forward") for rank in range(4)]
    running = msgspec.structs.replace(STATUS, state="running")
    held = merge(None, msgspec.structs.replace(running, ranks=old, full=True), 100.0)
    first = status_at(held, 100.0)
    changed = [msgspec.structs.replace(old[2], step=99)]
    held = merge(held, msgspec.structs.replace(running, ranks=changed, full=False), 101.0)
    second = status_at(held, 102.0)
    same = [a is b for a, b in zip(as_came(first.ranks), as_came(second.ranks), strict=True)]
    assert same == [True, True, False, True]
    assert second.ranks[0].phase_s == (old[0].phase_s or 0.0) + 2.0
    assert [row.step for row in second.ranks][2] == 99
    assert list(second.ranks)[1:3] == second.ranks[1:3]
