"""A hang that is known stays the verdict: while the hub was away, and once the run was ended."""

from collections.abc import Callable

import pytest

from rankscope.hub import snapshot
from rankscope.hub.core import Core
from rankscope.hub.incidents import Incidents
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
    entries = job.world.log()
    return [
        (one.event, one.finding.kind, one.finding.severity)
        for one in entries
        if one.finding.kind not in ("stalled", "hub-away")
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


def restarted(world: World, away_s: float) -> None:
    """Another hub goes on with what this one has left."""
    state = snapshot.load(snapshot.dump(world.state))
    world.now_s += away_s
    state.hub_was_away(world.now_s)
    world.core = Core(state, Incidents(world.core.know.incidents.shown), now_s=world.now_s)
    world.tick()


@pytest.mark.parametrize("away_s", [0.5, 60.0])
@pytest.mark.parametrize("made", [hung, stuck, starved])
def test_what_was_open_is_as_old_as_ever_after_a_restart(
    made: Callable[[], Job], away_s: float
) -> None:
    """The hub that is started learns of it anew; it did not begin with that."""
    job = made().hang(20.0)
    world = job.world
    (before,) = world.findings()
    known_s = world.now_s
    restarted(world, away_s)
    for _ in range(12):
        (after,) = world.findings()
        assert (after.kind, after.ranks) == (before.kind, before.ranks)
        assert after.since_s >= before.since_s + world.now_s - known_s - 0.01
        job.hang(1.0)


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
    assert seen(job) == [("missing-collective", "critical"), ("run-interrupted", "warning")]
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


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("gap_s", [0.3, 2.0])
def test_a_launcher_that_was_asked_may_kill_one_after_the_other(first: int, gap_s: float) -> None:
    """Who was killed first took nobody with it, whether or not it was the one that hung."""
    job = hung()
    (why,) = [finding.headline for finding in job.world.findings()]
    job.hang(30.0)
    for rank in sorted(range(4), key=lambda rank: rank != first):
        job.world.kill(rank, signal=9)
        job.world.advance(gap_s)
    job.world.run_end(1, asked=2)
    for _ in range(3):
        job.world.advance(1.0)
        verdict = job.world.status().verdict
        assert verdict is not None
        assert verdict.headline == f"ended from outside by SIGINT while it hung: {why}"


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
    assert seen(job) == [("missing-collective", "critical"), ("run-interrupted", "warning")]


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
    assert seen(job) == [("run-interrupted", "warning")]


@pytest.mark.parametrize(("how", "by"), [("SIGINT", "SIGINT"), (15, "SIGTERM"), (9, "SIGKILL")])
def test_that_a_hung_run_was_ended_from_outside_comes_first(how: str | int, by: str) -> None:
    """Whoever was waited for did not end the others: an operator did, by this signal."""
    job = hung()
    (why,) = [finding.headline for finding in job.world.findings()]
    for rank in range(4):
        if isinstance(how, str):
            job.world.raises(rank, "KeyboardInterrupt").exits(rank, 130)
        else:
            job.world.kill(rank, signal=how)
    job.world.advance(0.6)
    for at in range(8):
        if at == 4:
            job.world.run_end(1)
        job.world.advance(0.5)
        verdict = job.world.status().verdict
        assert verdict is not None
        assert verdict.headline == f"ended from outside by {by} while it hung: {why}"


@pytest.mark.parametrize("made", [hung, stuck, starved])
def test_what_is_left_of_a_hung_run_that_is_over_is_not_lost(made: Callable[[], Job]) -> None:
    """Its launcher was killed: the ranks are there, their sentinel leaves as it hears of the end,
    and nobody is heard any more."""
    job = made()
    (before,) = seen(job)
    job.world.run_end(137, 9)
    for rank in range(4):
        job.world.ranks[rank].mute = True
    job.world.silent_hosts.update(job.world.hosts)
    for _ in range(12):
        job.hang(1.0)
        assert seen(job) == [before]


@pytest.mark.parametrize("looked", [False, True])
@pytest.mark.parametrize("made", [hung, stuck, starved])
def test_a_hang_is_over_when_its_ranks_go_on_unobserved(
    made: Callable[[], Job], looked: bool
) -> None:
    """Whoever came to leave off being observed stands in nothing, and no more is heard of it."""
    job = made()
    job.world.step()
    if looked:
        job.world.tick()
    for rank in range(4):
        job.world.goodbye(rank, "paused")
    for _ in range(6):
        assert seen(job) == []
        assert job.world.status().state == "running"
        job.world.advance(5.0)


@pytest.mark.parametrize("made", [hung, stuck, starved])
def test_of_a_hung_run_that_was_ended_no_speed_is_told(made: Callable[[], Job]) -> None:
    """It made no step when it was ended, however fast it had been before it hung."""
    job = made().hang(30.0)
    assert job.world.view("overview").steps_per_s == 0.0
    for rank in range(4):
        job.world.kill(rank, signal=15)
    job.world.run_end(143)
    job.world.advance(5.0)
    ended = job.world.view("overview")
    assert (ended.state, ended.steps_per_s) == ("failed", 0.0)
    assert not ended.tokens_per_s


def test_of_a_run_that_hung_once_and_was_ended_later_its_speed_is_told() -> None:
    """What has passed is history, as it is in the verdict."""
    job = hung()
    job.does(TOKENS, ranks=(2,))
    for rank in (0, 1, 3):
        job.completed[rank] = dict(job.entered[rank])
    job.does(BUCKET).steps(8)
    job.world.advance(5.0, moving=True)
    for rank in range(4):
        job.world.kill(rank, signal=15)
    job.world.run_end(143)
    job.world.advance(5.0)
    assert job.world.view("overview").steps_per_s > 0.0
