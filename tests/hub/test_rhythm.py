"""How often the hub diagnoses: as often as something may come of it."""

from collections.abc import Callable

import pytest

from rankscope.hub.rhythm import CALM_TICK_S, MIN_TICK_S, TICK_S, Rhythm
from rankscope.protocol import messages as m
from support.collectives import TOKENS, Job
from support.world import World


def steady(ranks: int = 2) -> World:
    """A run that trains, diagnosed a moment ago."""
    world = World(ranks=ranks)
    for _ in range(4):
        world.step(step_s=0.1)
    world.tick()
    return world


def due_in_s(world: World, later_s: float = TICK_S) -> float:
    """How long after the last diagnosis the next is due, seen ``later_s`` after it."""
    world.core.state.urgent = False
    rhythm = Rhythm(world.now_s)
    return rhythm.due_s(world.core, world.now_s + later_s) - world.now_s


def test_ranks_that_go_on_are_looked_at_less_often() -> None:
    """Nothing can come of it: news makes the hub look at once."""
    world = steady()
    rhythm = Rhythm(world.now_s)
    for _ in range(4):
        world.step(step_s=0.1)
    world.core.state.urgent = False
    assert rhythm.due_s(world.core, world.now_s) == pytest.approx(rhythm.ticked_s + CALM_TICK_S)


def test_a_hub_that_is_awake_looks_before_it_sleeps_again() -> None:
    """What it has just heard has paid for most of what a diagnosis costs."""
    world = steady()
    rhythm = Rhythm(world.now_s)
    for _ in range(6):  # more than AWAKE_TICK_S, less than CALM_TICK_S
        world.step(step_s=0.1)
    world.core.state.urgent = False
    assert rhythm.due_s(world.core, world.now_s, awake=True) <= world.now_s
    assert rhythm.due_s(world.core, world.now_s) > world.now_s


def test_a_rank_that_stands_is_looked_at_as_soon_as_that_is_trouble() -> None:
    """Half a second is too late for one that has to be known to hang within one."""
    world = steady()
    due_s = due_in_s(world)
    assert TICK_S < due_s < CALM_TICK_S
    world.now_s += 0.3
    assert due_in_s(world) == pytest.approx(TICK_S)


def test_a_long_phase_of_a_long_step_is_no_trouble() -> None:
    """Where steps take seconds, ranks stand in one phase for longer than others take for a step."""
    world = World(ranks=2)
    for _ in range(4):
        world.step(step_s=3.0)
    world.tick()
    world.now_s += 1.0
    assert due_in_s(world) == pytest.approx(CALM_TICK_S)
    world.now_s += 2.0
    assert due_in_s(world) == pytest.approx(TICK_S)


def test_one_rank_that_stands_is_enough() -> None:
    """The others go on for a while, as far as they come without it."""
    world = steady(3)
    for _ in range(3):
        world.step(0, 2, step_s=0.1)
    world.tick()
    assert due_in_s(world) == pytest.approx(TICK_S)


def test_news_is_looked_at_at_once_however_calm_it_was() -> None:
    """What a sentinel or a rank tells makes a diagnosis urgent."""
    world = steady()
    rhythm = Rhythm(world.now_s)
    world.raises(1)
    assert rhythm.due_s(world.core, world.now_s) == world.now_s + MIN_TICK_S


def a_request(world: World) -> None:
    world.core.know.asked = object()  # type: ignore[assignment]


@pytest.mark.parametrize(
    "trouble",
    [
        lambda world: world.finish(1),
        lambda world: world.kill(1),
        lambda world: world.run_end(),
        a_request,
    ],
)
def test_whoever_has_ended_or_asks_keeps_the_hub_at_its_quicker_pace(
    trouble: Callable[[World], object],
) -> None:
    """An end explains itself within fractions of a second, and a request has a deadline."""
    world = steady()
    trouble(world)
    assert due_in_s(world) == pytest.approx(TICK_S)


def test_a_verdict_is_looked_at_at_the_quicker_pace() -> None:
    """Whether what is critical goes on is to be known soon, also while ranks move."""
    job = Job(World(ranks=2)).steps(12)
    job.enters(TOKENS, ranks=(0,)).hang(3.0)
    assert job.world.kinds() == ["missing-collective"]
    job.world.phase(0, m.Phase.BACKWARD).phase(1, m.Phase.BACKWARD)
    assert due_in_s(job.world) == pytest.approx(TICK_S)


def test_before_anybody_is_heard_the_hub_keeps_its_quicker_pace() -> None:
    """Ranks that come are to be seen soon."""
    world = World(ranks=2, hello=False)
    assert due_in_s(world) == pytest.approx(TICK_S)


def test_ranks_that_go_on_unobserved_are_no_reason_to_look() -> None:
    """They have said so: their silence tells nothing."""
    world = steady()
    for rank in world.ranks:
        world.goodbye(rank, "paused")
    world.tick()
    assert due_in_s(world) == pytest.approx(CALM_TICK_S)
