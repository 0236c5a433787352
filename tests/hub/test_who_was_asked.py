"""Whether the run was asked to end, or one of its ranks: the launcher's word tells."""

import pytest

from support.world import World


def stepped(ranks: int = 4, *, launched: bool = True) -> World:
    world = World(ranks)
    world.core.launcher_lives = lambda: launched and world.state.run_end is None
    for _ in range(12):
        world.step()
    world.advance(0.5)
    return world


def ended_by_its_launcher(world: World, first: int, signal: int, apart_s: float) -> None:
    """``first`` ends by ``signal``, the others by SIGTERM ``apart_s`` later."""
    world.kill(first, signal)
    world.advance(apart_s)
    for rank in world.ranks:
        if rank != first:
            world.kill(rank, 15)
    world.advance(0.25)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("apart_s", [0.15, 0.25, 0.45])
@pytest.mark.parametrize("signal", [1, 15])
def test_a_rank_that_somebody_asked_to_end_is_named(
    signal: int, apart_s: float, ranks: int
) -> None:
    """Its launcher, which nobody asked, ended the others when it had seen that; until it says so
    nothing is made up, in the log neither."""
    world = stepped(ranks)
    ended_by_its_launcher(world, 1, signal, apart_s)
    assert world.findings() == []
    world.run_end(1)
    world.advance(1.0)
    died = world.finding("rank-dead")
    assert (died.ranks, died.victims) == ([1], [rank for rank in range(ranks) if rank != 1])
    name = "SIGHUP" if signal == 1 else "SIGTERM"
    assert died.headline.startswith(f"rank 1 died: {name}, last heard in backward of step 13")
    assert [entry.finding.kind for entry in world.log()] == ["rank-dead"]


@pytest.mark.parametrize("asked", [1, 2, 15])
@pytest.mark.parametrize("apart_s", [0.0, 0.25, 0.45])
def test_a_launcher_that_was_asked_ends_ranks_of_which_none_is_named(
    apart_s: float, asked: int
) -> None:
    """However far apart they end; and what ended the run is what the launcher got, in the verdict
    as in the log."""
    world = stepped()
    ended_by_its_launcher(world, 1, 15, apart_s)
    world.run_end(1, asked=asked)
    world.advance(1.0)
    found = world.finding("run-interrupted")
    assert (found.severity, found.ranks) == ("warning", [])
    name = {1: "SIGHUP", 2: "SIGINT", 15: "SIGTERM"}[asked]
    assert found.headline == f"run was ended by {name} after step 12"
    assert {entry.finding.kind for entry in world.log()} == {"run-interrupted"}
    assert world.log()[-1].finding.headline == found.headline
    assert world.core.know.incidents.count == 1


@pytest.mark.parametrize("apart_s", [0.02, 0.15])
def test_ranks_that_were_asked_together_accuse_none_though_their_launcher_was_not(
    apart_s: float,
) -> None:
    """By a hand that reached them all: some take longer to leave, and none of them is the first."""
    world = stepped()
    for rank in world.ranks:
        world.kill(rank, 15)
        world.now_s += apart_s
    world.run_end(1)
    world.advance(1.0)
    assert world.finding("run-interrupted").ranks == []


@pytest.mark.parametrize("launched", [True, False])
def test_where_the_launcher_says_nothing_nobody_is_accused(launched: bool) -> None:
    """There is none, or it has gone on for long, as a script does that does something else now."""
    world = stepped(launched=launched)
    ended_by_its_launcher(world, 1, 15, 0.25)
    world.advance(6.0)
    assert world.finding("run-interrupted").ranks == []


@pytest.mark.parametrize("asked", [1, 2, 15])
def test_one_signal_is_named_where_a_rank_was_stopped_too(asked: int) -> None:
    """Verdict, findings and log of a run that was ended while a rank was stopped."""
    world = stepped(2)
    world.stop(1)
    world.advance(5.0)
    world.kill(0, 15)
    world.advance(30.0)
    world.kill(1)
    world.advance(0.3)
    world.run_end(1, asked=asked)
    world.advance(1.0)
    name = {1: "SIGHUP", 2: "SIGINT", 15: "SIGTERM"}[asked]
    findings = world.findings()
    assert findings[0].headline.startswith(f"ended from outside by {name} while it hung: rank 1")
    told = [one.headline for one in findings[1:]]
    told += [entry.finding.headline for entry in world.log()][-1:]
    for headline in told:
        assert headline == f"run was ended by {name} after step 12"
