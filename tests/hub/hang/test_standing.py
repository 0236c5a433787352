"""A hang that is known stays the verdict: while the hub was away, and once the run was ended."""

from collections.abc import Callable

import pytest

from rankscope.protocol import messages as m
from support.collectives import BUCKET, TOKENS, Job
from support.world import World


def hung(step_s: float = 0.1) -> Job:
    """Rank 2 of 4 does not come, and is called so."""
    job = Job(World(ranks=4)).steps(12, step_s=step_s)
    job.world.phase(2, m.Phase.FORWARD)
    job.enters(TOKENS, ranks=(0, 1, 3)).hang(0.75)
    job.operations(0).operations(1).operations(3).stack(2, "model.py:7 in forward")
    job.hang(max(2.0, 6 * step_s))
    assert seen(job) == [("missing-collective", "critical")]
    return job


def seen(job: Job) -> list[tuple[str, str]]:
    return [(finding.kind, finding.severity) for finding in job.world.findings()]


def log(job: Job) -> list[tuple[str, str, str]]:
    entries = job.world.view("incidents").incidents
    return [
        (one.event, one.finding.kind, one.finding.severity)
        for one in entries
        if one.finding.kind != "stalled"
    ]


@pytest.mark.parametrize("away_s", [4.0, 60.0])
@pytest.mark.parametrize("step_s", [0.1, 2.0])
def test_a_hang_goes_on_over_an_absence_of_the_hub(away_s: float, step_s: float) -> None:
    """The verdict stays, and the log has one opening of it and no end."""
    job = hung(step_s)
    job.world.now_s += away_s
    job.world.tick()
    assert seen(job) == [("missing-collective", "critical")]
    assert job.world.finding("missing-collective").since_s >= away_s
    for _ in range(20):
        job.hang(1.0)
        assert seen(job) == [("missing-collective", "critical")]
    assert log(job) == [
        ("opened", "missing-collective", "info"),
        ("opened", "missing-collective", "critical"),
    ]


def stuck() -> Job:
    """All ranks have entered a collective, and none leaves it."""
    job = Job(World(ranks=4)).steps(12, step_s=0.1)
    job.enters(TOKENS).hang(0.75)
    for rank in range(4):
        job.operations(rank).stack(rank)
    return job.hang(8.0)


def starved() -> Job:
    """Rank 2 of 4 waits for its batch."""
    job = Job(World(ranks=4)).steps(12, step_s=0.1)
    job.world.phase(2, m.Phase.DATA)
    return job.enters(TOKENS, ranks=(0, 1, 3)).hang(3.0)


@pytest.mark.parametrize("mute", [(2,), (0,), (0, 1, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("silence_s", [1.25, 2.0, 4.0])
@pytest.mark.parametrize("made", [hung, stuck, starved])
def test_no_word_is_no_movement(
    made: Callable[[], Job], silence_s: float, mute: tuple[int, ...]
) -> None:
    """On a busy machine ranks are not heard for a while, again and again: the hang goes on."""
    job = made()
    (before,) = seen(job)
    for _ in range(3):
        for rank in mute:
            job.world.ranks[rank].mute = True
        job.hang(silence_s)
        assert before in seen(job)
        for rank in mute:
            job.world.ranks[rank].mute = False
        job.hang(1.0)
        assert before in seen(job)
    of_kind = [entry[0] for entry in log(job) if entry[1:] == before]
    assert of_kind == ["opened"]


def test_a_rank_that_moved_unheard_ends_the_hang_when_it_is_heard() -> None:
    """Its silence had kept the verdict, its word ends it."""
    job = hung()
    job.world.ranks[2].mute = True
    job.hang(2.0)
    job.world.ranks[2].mute = False
    job.does(TOKENS, ranks=(2,))
    for rank in (0, 1, 3):
        job.completed[rank] = dict(job.entered[rank])
    job.steps(1)
    assert seen(job) == []


def test_a_rank_that_came_while_the_hub_was_away_ends_the_hang() -> None:
    """Whoever moves is no longer waited for."""
    job = hung()
    job.world.now_s += 4.0
    job.world.tick()
    job.does(TOKENS, ranks=(2,))
    for rank in (0, 1, 3):
        job.completed[rank] = dict(job.entered[rank])
    job.steps(1)
    assert seen(job) == []


def test_a_hung_run_that_is_ended_tells_of_its_hang() -> None:
    """First why, then that it was ended; the log has the hang closed."""
    job = hung()
    for rank in range(4):
        job.world.kill(rank, signal=15)
        job.world.advance(0.05)
    job.world.run_end(143)
    job.world.advance(10.0)
    assert seen(job) == [("missing-collective", "critical"), ("rank-dead", "warning")]
    verdict = job.world.status().verdict
    assert verdict is not None
    assert (verdict.kind, verdict.ranks) == ("missing-collective", [2])
    assert ("closed", "missing-collective", "critical") in log(job)


@pytest.mark.parametrize("how", ["hang", "stopped"])
def test_a_hung_run_whose_ranks_had_to_be_killed_tells_of_its_hang(how: str) -> None:
    """A launcher kills what does not heed Ctrl-C: that all died at once is not why it hung."""
    if how == "hang":
        job, kind = hung(), "missing-collective"
    else:
        job, kind = Job(World(ranks=4)).steps(12), "rank-stopped"
        job.world.stop(2)
        job.hang(3.0)
    assert seen(job)[0] == (kind, "critical")
    job.hang(30.0)
    for rank in range(4):
        job.world.kill(rank, signal=9)
    job.world.run_end(1)
    for _ in range(3):
        job.world.advance(1.0)
        verdict = job.world.status().verdict
        assert verdict is not None
        assert (verdict.kind, verdict.ranks) == (kind, [2])


def test_one_rank_killed_in_a_hang_is_its_own_death() -> None:
    """Nobody ended the run as a whole."""
    job = hung()
    job.world.kill(0, signal=9)
    job.world.advance(0.3)
    for rank in (1, 2, 3):
        job.world.kill(rank, signal=15)
    job.world.run_end(1)
    job.world.advance(1.0)
    verdict = job.world.status().verdict
    assert verdict is not None
    assert (verdict.kind, verdict.ranks) == ("rank-dead", [0])


def test_a_hung_run_that_is_interrupted_tells_of_its_hang() -> None:
    """Also where ranks heed Ctrl-C one after the other."""
    job = hung()
    job.world.raises(2, "KeyboardInterrupt")
    job.world.advance(3.0)
    for rank in (0, 1, 3):
        job.world.raises(rank, "KeyboardInterrupt")
    job.world.advance(0.5)
    for rank in range(4):
        job.world.exits(rank, 130)
    job.world.run_end(1)
    job.world.advance(2.0)
    assert seen(job) == [("missing-collective", "critical"), ("rank-dead", "warning")]


def test_a_run_that_is_ended_long_after_a_hang_is_merely_ended() -> None:
    """What has passed is history."""
    job = hung()
    job.does(TOKENS, ranks=(2,))
    for rank in (0, 1, 3):
        job.completed[rank] = dict(job.entered[rank])
    job.does(BUCKET).steps(8)
    job.world.advance(5.0, moving=True)
    for rank in range(4):
        job.world.kill(rank, signal=15)
    job.world.run_end(143)
    job.world.advance(2.0)
    assert seen(job) == [("rank-dead", "warning")]
