"""Ranks that are stopped and then killed: nobody's death kills one that is stopped."""

import itertools

import pytest

from support.world import World


def stopped(ranks: int, *, but: tuple[int, ...] = ()) -> World:
    """A run all of whose ranks ``but`` these are stopped, and have been for a while."""
    world = World(ranks)
    for _ in range(12):
        world.step()
    world.advance(0.5)
    for rank in range(ranks):
        if rank not in but:
            world.stop(rank)
    world.advance(5.0)
    return world


def killed(world: World, rank: int, *, seen_going: bool = False) -> World:
    """SIGKILL. It takes a while until the process has gone, in which it is not stopped any more, as
    its sentinel may see."""
    if seen_going:
        world.ranks[rank].state = "alive"
        world.report("node-0")
        world.now_s += 0.1
        world.tick()
    return world.kill(rank)


@pytest.mark.parametrize("seen_going", [False, True])
@pytest.mark.parametrize("gap_s", [0.0, 0.15, 0.5, 1.5, 5.0])
@pytest.mark.parametrize(
    "order", [*itertools.permutations(range(2)), *itertools.permutations(range(3))]
)
def test_stopped_ranks_that_are_killed_one_after_the_other_accuse_none(
    order: tuple[int, ...], gap_s: float, seen_going: bool
) -> None:
    """Somebody ended what was stopped, in whichever order and however fast: none of them took
    another with it, and why the run stood still stays the verdict."""
    world = stopped(len(order))
    for rank in order:
        killed(world, rank, seen_going=seen_going).advance(gap_s)
        for finding in world.findings():
            assert not finding.victims, finding
    world.run_end(1)
    world.advance(3.0)
    everybody = sorted(order)
    died = next(one for one in world.findings() if one.kind == "rank-dead")
    assert (died.ranks, died.victims) == (everybody, [])
    status = world.status()
    assert status.verdict is not None
    assert (status.verdict.kind, status.verdict.ranks) == ("rank-stopped", everybody)
    assert status.verdict.headline.startswith("ended from outside by SIGKILL while it hung: ranks")
    log = [entry for entry in world.log() if entry.finding.kind == "rank-dead"]
    assert {(entry.event, entry.id) for entry in log} == {("opened", log[0].id)}
    assert log[-1].finding.ranks == everybody  # they died as one, and the log says so in the end


def test_a_stopped_rank_is_no_victim_of_one_that_dies() -> None:
    """It was stopped before, and is so still; those that ran are victims as ever."""
    world = stopped(4, but=(0, 2))
    world.kill(0).advance(0.1)
    world.kill(2, 15).advance(1.0)
    died = next(one for one in world.findings() if one.kind == "rank-dead")
    assert (died.ranks, died.victims) == ([0], [2])
    assert "ranks 1 and 3 had been stopped before" in died.evidence
    for rank in (1, 3):
        killed(world, rank, seen_going=True)
    world.run_end(1)
    world.advance(3.0)
    died = next(one for one in world.findings() if one.kind == "rank-dead")
    assert (died.ranks, died.victims) == ([0, 1, 3], [2])


def test_a_stopped_rank_that_its_launcher_kills_is_not_named() -> None:
    """Half a minute after it asked it in vain to end, since another had died."""
    world = stopped(2, but=(0,))
    world.kill(0).advance(30.0)
    killed(world, 1, seen_going=True).advance(0.5)
    world.run_end(1)
    world.advance(3.0)
    died = next(one for one in world.findings() if one.kind == "rank-dead")
    assert (died.ranks, died.victims) == ([0], [])
    assert "rank 1 had been stopped before, and then ended: SIGKILL" in died.evidence


def test_a_rank_that_goes_on_and_dies_later_is_a_victim_again() -> None:
    """That it was stopped once is past."""
    world = stopped(2, but=(0,))
    world.cont(1)
    world.step()
    world.advance(1.0)
    world.kill(0).advance(0.5)
    world.kill(1, 15)
    world.run_end(1)
    world.advance(3.0)
    died = world.finding("rank-dead")
    assert (died.ranks, died.victims) == ([0], [1])
