"""Keeping a whole status from changed rows, and letting ages go on."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rankscope.protocol.shapes import RankRow, Status
from rankscope.tui.feed.merge import merge, overview_at, status_at
from support.samples import OVERVIEW, ROW, STATUS


def row(rank: int, step: int = 0, phase_s: float = 0.0) -> RankRow:
    return msgspec.structs.replace(ROW, rank=rank, step=step, phase_s=phase_s, heard_s=phase_s)


def status(*rows: RankRow, full: bool = False, state: str = "running") -> Status:
    return msgspec.structs.replace(STATUS, ranks=list(rows), full=full, state=state)


def test_changed_rows_replace_their_own_and_leave_the_others() -> None:
    """A delta brings what changed; the rest is kept."""
    held = merge(None, status(row(0, 5), row(1, 5), full=True), 100.0)
    held = merge(held, status(row(1, 6)), 101.0)
    whole = status_at(held, 101.0)
    assert [(r.rank, r.step) for r in whole.ranks] == [(0, 5), (1, 6)]
    assert whole.full


def test_a_row_that_did_not_come_again_grows_older() -> None:
    """Its ages are as of when it came; the time since is added."""
    held = merge(None, status(row(0, phase_s=1.0), row(1, phase_s=1.0), full=True), 100.0)
    held = merge(held, status(row(1, phase_s=0.5)), 103.0)
    ages = {r.rank: (r.phase_s, r.heard_s) for r in status_at(held, 104.0).ranks}
    assert ages == {0: (5.0, 5.0), 1: (1.5, 1.5)}


def test_findings_grow_older_too() -> None:
    """Nothing new from the hub is not the same as no time gone by."""
    held = merge(None, status(row(0), full=True), 100.0)
    aged = status_at(held, 102.5)
    assert aged.verdict is not None
    assert STATUS.verdict is not None
    assert aged.verdict.since_s == STATUS.verdict.since_s + 2.5
    assert aged.findings[0].since_s == STATUS.findings[0].since_s + 2.5


def test_an_ended_run_ages_no_more() -> None:
    """What it was at its end is what is shown for ever."""
    held = merge(None, status(row(0, phase_s=1.0), full=True, state="finished"), 100.0)
    assert status_at(held, 5000.0).ranks[0].phase_s == 1.0
    assert overview_at(OVERVIEW, 100.0, 5000.0) is OVERVIEW


def test_an_overview_grows_older() -> None:
    """Up time, data age and health go on between two overviews."""
    running = msgspec.structs.replace(OVERVIEW, state="running", healthy_s=3.0)
    aged = overview_at(running, 100.0, 101.5)
    assert aged.up_s == running.up_s + 1.5
    assert aged.data_age_s == 1.6 + 1.5
    assert aged.healthy_s == 4.5
    assert aged.stalled_s is None


@given(
    st.lists(
        st.dictionaries(st.integers(0, 5), st.integers(0, 9), max_size=6), min_size=1, max_size=8
    )
)
def test_deltas_come_to_the_same_as_the_whole(updates: list[dict[int, int]]) -> None:
    """However the rows are cut into updates, the newest of each rank is held."""
    held, newest = None, {}
    for at, update in enumerate(updates):
        newest.update(update)
        rows = [row(rank, step) for rank, step in update.items()]
        held = merge(held, status(*rows, full=at == 0), 100.0 + at)
    assert held is not None
    assert {r.rank: r.step for r in status_at(held, 200.0).ranks} == newest
