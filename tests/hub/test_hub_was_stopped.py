"""A hub that was stopped reads what was said meanwhile: nobody stood still because it did."""

import pytest

from rankscope.protocol import messages as m
from support.world import World


def stopped_for(world: World, seconds: float) -> None:
    """The hub sees nothing for so long, while the ranks go on at half a second a step."""
    for _ in range(int(2 * seconds)):
        world.now_s += 0.5
        for sim in world.ranks.values():
            sim.step += 1
            sim.activity += 4
            sim.phase, sim.phase_s = m.Phase.BACKWARD, world.now_s


@pytest.mark.parametrize("seconds", [11.0, 17.0, 60.0])
@pytest.mark.parametrize("read", [1, 2, 3])
def test_a_hub_that_was_stopped_calls_no_run_stalled(seconds: float, read: int) -> None:
    """However much of what waited for it was read when it looks for the first time."""
    world = World(ranks=3)
    for _ in range(8):
        world.step(step_s=0.5)
        world.tick()
    was = {rank: (sim.step, sim.phase_s, sim.activity) for rank, sim in world.ranks.items()}
    stopped_for(world, seconds)
    world.tick()
    for rank in range(read):  # said when the hub had just been stopped, and read now
        step, phase_s, activity = was[rank]
        at_s = phase_s + world.ranks[rank].clock_s
        world.beat(rank, step=step, phase_t_s=at_s, activity=activity)
        world.now_s += 0.02
        world.tick()
    assert world.status().state == "running"
    for rank in world.ranks:
        world.beat(rank)
    world.advance(3.0)
    assert world.status().state == "running"
    kinds = [entry.finding.kind for entry in world.core.know.incidents.shown]
    assert "stalled" not in kinds


def test_a_run_that_stands_still_is_found_after_the_hub_was_stopped() -> None:
    """The time it was away excuses nobody for long."""
    world = World(ranks=3)
    for _ in range(8):
        world.step(step_s=0.5)
        world.tick()
    world.now_s += 17.0
    world.tick()
    world.advance(15.0)
    assert world.status().state == "stalled"
