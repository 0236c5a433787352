"""A peer's error comes before the news of what it felt: one event, one incident."""

from collections.abc import Callable

import pytest

from rankscope.protocol import shapes
from support.world import World

Script = Callable[[World], object]


def felt(world: World, *ranks: int) -> None:
    """These ranks lose their peer, and end."""
    for rank in ranks:
        world.raises(rank, "RuntimeError", from_peer=True, message="Connection closed by peer")
        world.exits(rank, 1)


def trained(ranks: int = 2) -> World:
    world = World(ranks)
    for _ in range(20):
        world.step()
    return world


def opened(world: World) -> list[tuple[str, list[int]]]:
    """Kind and culprits of every incident so far."""
    entries: list[shapes.Incident] = world.view("incidents").incidents
    return [(i.finding.kind, i.finding.ranks) for i in entries if i.event == "opened"]


LEAVES: dict[str, Script] = {
    "it said goodbye (sys.exit)": lambda w: w.goodbye(1),
    "it is alive and says nothing": lambda w: setattr(w.ranks[1], "mute", True),
}
ENDS: dict[str, Script] = {
    "exit 5": lambda w: w.exits(1, 5),
    "exit 1": lambda w: w.exits(1, 1),
    "abort": lambda w: w.kill(1, 6),
    "segmentation fault": lambda w: w.kill(1, 11),
    "kill": lambda w: w.kill(1, 9),
}


@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("after_s", [0.25, 1.5, 4.5])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_process_may_take_seconds_to_end(
    leave: str, end: str, after_s: float, ranks: int
) -> None:
    """The rank that ended first is named, once, however slowly its interpreter went down."""
    world = trained(ranks)
    LEAVES[leave](world)
    felt(world, *(rank for rank in range(ranks) if rank != 1))
    world.advance(after_s)
    ENDS[end](world)
    world.advance(10.0)
    assert opened(world) == [("rank-dead", [1])]


@pytest.mark.parametrize("leave", LEAVES)
def test_so_it_is_when_the_ranks_are_restarted(leave: str) -> None:
    """Attempt after attempt: one incident each."""
    world = trained()
    for _ in range(3):
        LEAVES[leave](world)
        felt(world, 0)
        world.advance(2.0)
        world.exits(1, 5)
        world.advance(0.5)
        world.new_attempt()
        for _ in range(5):
            world.step()
    world.advance(1.0)
    assert opened(world) == [("rank-dead", [1])] * 3


def test_the_wait_ends() -> None:
    """When no end is ever told, the peers' error is, with who had left before."""
    world = trained()
    world.goodbye(1)
    felt(world, 0)
    world.advance(4.5)
    assert opened(world) == []
    world.advance(3.0)
    finding = world.finding("exception")
    assert (finding.ranks, finding.victims) == ([], [0])
    assert "rank 1 had said goodbye after step 20" in finding.evidence
    assert "rank 1" in finding.next


def test_nobody_is_waited_for_when_all_others_are_there() -> None:
    """Ranks that go on speaking have not ended: a second is enough."""
    world = trained(4)
    felt(world, 0)
    world.advance(1.5, moving=True)
    finding = world.finding("exception")
    assert (finding.ranks, finding.victims) == ([], [0])


@pytest.mark.parametrize("leave", LEAVES)
def test_nobody_is_waited_for_once_the_command_has_ended(leave: str) -> None:
    """The launcher has seen all its processes end: what is not known now never will be."""
    world = trained()
    LEAVES[leave](world)
    felt(world, 0)
    world.advance(0.5)
    world.run_end(1)
    world.advance(1.5)
    assert opened(world) == [("exception", [])]


def test_a_rank_that_is_lost_instead_is_the_only_incident() -> None:
    """Its silence becomes a finding before the wait is over."""
    world = trained(4)
    world.advance(0.5, moving=True)
    world.ranks[1].mute = True
    felt(world, 0)
    world.advance(9.0, moving=True)
    assert opened(world) == [("link-lost", [1])]
