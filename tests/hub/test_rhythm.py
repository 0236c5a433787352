"""How often the hub diagnoses: as often as something may come of it."""

import math
import random
from collections.abc import Callable

import pytest

from rankscope.agent import looks
from rankscope.hub import rhythm as pace
from rankscope.hub.diagnose.gil_held import SILENT_S
from rankscope.hub.rhythm import CLOCK_S, MIN_TICK_S, TICK_S, Rhythm
from rankscope.hub.state.ranks import NO_GOODBYE, UNOBSERVED
from rankscope.hub.state.run import AWAY_S
from rankscope.protocol import messages as m
from support.collectives import TOKENS, Job
from support.numericworld import NumericWorld
from support.world import World

SOON_S, CALM_TICK_S = pace.CALM_TICK_S
"""Where what was heard matters to somebody, and where it does not."""


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
    for _ in range(5):
        world.step(step_s=0.1)
    world.core.state.urgent = False
    assert rhythm.due_s(world.core, world.now_s) == pytest.approx(rhythm.ticked_s + CALM_TICK_S)


@pytest.mark.parametrize(("watched", "every"), [(False, 3), (True, 2)])
def test_a_calm_hub_wakes_for_what_comes_and_for_nothing_else(watched: bool, every: int) -> None:
    """Ranks that speak every 0.45 s, at the moments of their node: every third time it looks, and
    every second time while somebody looks at it."""
    world = steady()
    rhythm = Rhythm(world.now_s)
    for beat in range(1, 4 * every + 1):
        world.core.state.urgent = False
        world.core.client_s = world.now_s if watched else None
        next_s = world.now_s + looks.GOING_S
        assert rhythm.due_s(world.core, world.now_s) > next_s + 0.04
        while world.now_s < next_s - 1e-9:
            world.step(step_s=0.09)
        due_s = rhythm.due_s(world.core, world.now_s, awake=True)
        assert (due_s <= world.now_s) is (beat % every == 0)
        if due_s <= world.now_s:
            world.tick()
            rhythm.ticked(world.now_s)


def test_a_hub_that_is_awake_looks_before_it_sleeps_again() -> None:
    """What it has just heard has paid for most of what a diagnosis costs."""
    world = steady()
    rhythm = Rhythm(world.now_s)
    for _ in range(13):  # more than is due of one that is awake, less than of one that sleeps
        world.step(step_s=0.1)
    world.core.state.urgent = False
    assert rhythm.due_s(world.core, world.now_s, awake=True) <= world.now_s
    assert rhythm.due_s(world.core, world.now_s) > world.now_s


def unusual(world: World) -> None:
    world.state.unusual = True


def an_outlier(world: World) -> None:
    world.state.numerics.outliers.append(object())  # type: ignore[arg-type]


def a_client(world: World) -> None:
    world.core.client_s = world.now_s


@pytest.mark.parametrize("why", [unusual, an_outlier, a_client])
def test_what_matters_to_somebody_is_looked_at_with_the_next_beat_or_two(
    why: Callable[[World], None],
) -> None:
    """A number that stands out, memory that rises, a dashboard that shows it."""
    world = steady()
    rhythm = Rhythm(world.now_s)
    for _ in range(6):
        world.step(step_s=0.1)
    assert rhythm.due_s(world.core, world.now_s, awake=True) > world.now_s
    why(world)
    assert rhythm.due_s(world.core, world.now_s, awake=True) <= world.now_s
    assert rhythm.due_s(world.core, world.now_s) == pytest.approx(rhythm.ticked_s + SOON_S)


def test_however_seldom_it_looks_the_hub_was_not_away() -> None:
    """A busy machine may keep it from its time for long."""
    assert max(*pace.CALM_TICK_S, pace.AWAKE_TICK_S[1] + looks.GOING_S) + 0.8 < AWAY_S


def test_the_next_word_of_a_rank_is_waited_for() -> None:
    """It says whether the rank has moved: to wake just before it would tell nothing."""
    world = steady()
    cells, now_s = world.state.ranks.cells, world.now_s
    for rank in world.ranks:
        cells.heard_s[rank] = now_s
        cells.moved_s[rank] = now_s - 0.15
    assert pace.calm_until_s(world.state) == pytest.approx(now_s + pace.NEXT_WORD_S[1])
    cells.moved_s[1] = now_s - 0.3  # that one was heard to stand
    assert pace.calm_until_s(world.state) == pytest.approx(now_s - 0.3 + pace.QUIET_S)


def test_few_ranks_are_judged_as_many_are() -> None:
    """One by one, or all at once: when the first of them is trouble is the same."""
    chance = random.Random(1)
    said = set()
    for _ in range(400):
        world = World(ranks=chance.randint(1, 4), sentinels=False, hello=chance.random() < 0.9)
        state, now_s = world.state, world.now_s
        for rank in range(state.size()):
            cells = state.ranks.cells
            some = [math.nan, now_s - chance.random()]
            cells.heard_s[rank] = chance.choice([*some, now_s])
            cells.moved_s[rank] = chance.choice([*some, now_s - 0.1, now_s - 0.15])
            state.progress.moved_s[rank] = chance.choice([*some, math.nan])
            cells.step_s[rank] = chance.choice([math.nan, 0.1, 0.7, 3.0])
            cells.ended_s[rank] = chance.choice([math.nan] * 9 + [now_s])
            cells.goodbye[rank] = chance.choice([NO_GOODBYE] * 6 + [UNOBSERVED, 1])
        found = pace._of_few(state)
        assert found == pace._of_many(state)
        said.add(found if math.isinf(found) else 0.0)
    assert said == {math.inf, -math.inf, 0.0}


def test_a_rank_that_stands_is_looked_at_as_soon_as_that_is_trouble() -> None:
    """Half a second is too late for one that has to be known to hang within one."""
    world = steady()
    due_s = due_in_s(world)
    assert TICK_S < due_s < CALM_TICK_S
    assert due_in_s(world, 0.0) == due_s
    world.now_s += 0.4
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
    for _ in range(4):
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


def test_a_number_that_is_not_finite_keeps_the_hub_at_its_quicker_pace() -> None:
    """Its verdict waits for what the other ranks tell of the same step."""
    world = NumericWorld(2).clean(4)
    world.sees(1, m.Stage.LOSS)
    world.tick()
    assert world.kinds() == []
    assert due_in_s(world) == pytest.approx(TICK_S)


def test_a_rank_that_falls_silent_is_looked_at_when_that_is_silence() -> None:
    """Not a quarter of a second later: what holds its interpreter is to be known within one."""
    world = steady(2)
    heard_s = world.now_s
    for ticked_s in (0.4, 0.62, 0.7):
        rhythm = Rhythm(heard_s + ticked_s)
        world.core.state.urgent = False
        due_s = rhythm.due_s(world.core, heard_s + max(0.61, ticked_s))
        later_s = min(ticked_s + TICK_S, SILENT_S + CLOCK_S)
        assert due_s == pytest.approx(heard_s + later_s)
    rhythm = Rhythm(heard_s + 0.9)  # it was looked at since
    assert rhythm.due_s(world.core, heard_s + 0.9) == pytest.approx(heard_s + 0.9 + TICK_S)


@pytest.mark.parametrize(
    ("slept_s", "client_s", "lingers"),
    [
        (0.4, None, True),
        (0.4, 10.0, True),
        (0.4, 99.5, False),
        (0.001, None, False),
    ],
)
def test_a_hub_that_is_woken_waits_for_all_ranks_of_the_node(
    slept_s: float, client_s: float | None, lingers: bool
) -> None:
    """Not where a client waits for its answer, and not where there is enough to do."""
    assert pace.lingers(slept_s, 100.0, client_s) is lingers


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
