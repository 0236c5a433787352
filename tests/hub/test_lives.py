"""Restarts of a run over several nodes: each launcher counts the failures of its own ranks only."""

import itertools
from typing import Any

import pytest

from rankscope.hub import snapshot
from rankscope.protocol import messages as m
from support.world import World

ORDERS = list(itertools.permutations(range(4)))[::3]


def two_nodes() -> World:
    """Ranks 0 and 1 on node-0, 2 and 3 on node-1, some steps on."""
    world = World(4, per_node=2)
    for _ in range(3):
        world.step()
    return world


def all_end(world: World) -> None:
    """Rank 3 is killed; the launchers then end the others."""
    world.kill(3)
    for rank in (2, 0, 1):
        world.ended(rank, signal=15)
    world.advance(1.0)


def goes_on(world: World, attempt: int) -> None:
    """Everything of this life is heard, and nothing is wrong."""
    for _ in range(3):
        world.step()
        for peer, reply in world.replies():
            if isinstance(reply, m.WhoAreYou) and peer == b"rank %d" % reply.rank:
                world.hello(reply.rank)
    world.advance(2.0, moving=True)
    status = world.status()
    assert (status.attempt, status.state, status.findings) == (attempt, "running", [])
    assert [row.step for row in status.ranks] == [3, 3, 3, 3]
    assert [row.pid for row in status.ranks] == [sim.pid for sim in world.ranks.values()]
    assert [row.link for row in status.ranks] == ["up"] * 4


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("counts", [(0, 1), (1, 0), (1, 1), (0, 0)])
def test_ranks_are_heard_whatever_their_launchers_call_the_attempt(
    counts: tuple[int, int], order: tuple[int, ...]
) -> None:
    """In any order of hellos, and whichever launcher counts the restart."""
    world = two_nodes()
    all_end(world)
    world.counts = {"node-0": counts[0], "node-1": counts[1]}
    world.new_lives(*order)
    goes_on(world, max(counts))


@pytest.mark.parametrize("order", ORDERS[::3])
def test_one_restart_after_the_other_is_heard(order: tuple[int, ...]) -> None:
    """Of one node, of the other, of none and of both: the number never falls."""
    world = two_nodes()
    shown = []
    for counts in ((0, 1), (1, 1), (1, 1), (2, 1), (2, 2), (3, 3), (3, 5), (4, 5)):
        all_end(world)
        world.counts = {"node-0": counts[0], "node-1": counts[1]}
        world.new_lives(*order)
        shown.append(max(counts))
        goes_on(world, shown[-1])


def test_a_process_of_the_attempt_before_does_not_come_back() -> None:
    """Its node's launcher counts less, and it is asked who it is: it is known from before."""
    world = two_nodes()
    old = world.ranks[0]
    world.kill(3)
    world.counts = {"node-0": 0, "node-1": 1}
    world.new_lives(2, 3)
    for _ in range(3):
        world.from_rank(0, m.Beat, **beat_of(old.step))
        world.hello(0)
    assert not world.state.knows_rank(0)
    assert world.status().ranks[0].pid is None
    world.ended(0, signal=15).new_lives(0, 1)
    goes_on(world, 1)


def beat_of(step: int) -> dict[str, Any]:
    return {"step": step, "microbatch": 1, "phase": m.Phase.DATA, "phase_t_s": 0.0, "activity": 9}


def test_on_one_node_a_smaller_number_is_late() -> None:
    """A process that nobody had heard of before the restart is none of the new attempt."""
    world = World(2, attached=[0, 1])
    world.step()
    world.new_attempt()
    world.goodbye(1)
    world.counts = {"node-0": 0}
    world.ranks[1].pid = 4242
    world.hello(1)
    assert world.status().ranks[1].pid != 4242


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_what_the_sentinel_sees_of_a_smaller_number_counts(how: str) -> None:
    """A death and a stop of a rank whose launcher did not count the restart."""
    world = two_nodes()
    all_end(world)
    world.counts = {"node-0": 0, "node-1": 1}
    world.new_lives(2, 0, 3, 1)
    goes_on(world, 1)
    if how == "killed":
        world.kill(1)
        assert world.finding("rank-dead").ranks == [1]
    else:
        world.stop(1)
        world.advance(2.0)
        assert world.finding("rank-stopped").ranks == [1]


def test_a_hub_that_is_back_still_knows_whose_number_is_smaller() -> None:
    """The snapshot holds it."""
    world = two_nodes()
    all_end(world)
    world.counts = {"node-0": 0, "node-1": 1}
    world.new_lives(2, 0, 3, 1)
    world.step()
    again = snapshot.load(snapshot.dump(world.state))
    step = again.ranks.step.item(0)
    beat = m.Beat(attempt=0, rank=0, seq=99, t_s=0.0, **beat_of(step + 1))
    assert again.apply(beat, world.now_s)
    assert again.ranks.step.item(0) == step + 1
