"""What makes the hub look sooner than it would: words of which a finding may come."""

import math

import pytest

from rankscope.protocol import messages as m
from support.numericworld import NumericWorld

MIB = 1 << 20


def trained(steps: int = 12) -> NumericWorld:
    """Two ranks that train as they should, diagnosed a moment ago."""
    world = NumericWorld(2).clean(steps)
    assert not world.state.unusual
    return world


def memory(world: NumericWorld, taken_bytes: int) -> None:
    read = m.Memory(None, None, None, None, None, taken_bytes, taken_bytes, taken_bytes)
    world.beat(1, memory=read)


def test_steps_as_usual_are_nothing_to_look_at() -> None:
    """Norms that wobble, data of each rank's own, an update in each step, memory that stays."""
    world = trained()
    for step in range(8):
        world.done(tick=False)
        memory(world, 900 * MIB + step * 4096)
        assert not world.state.unusual


@pytest.mark.parametrize(
    "numbers",
    [
        {"norms": {1: 400.0}},
        {"norms": {1: math.inf}},
        {"norms": {1: math.nan}},
        {"updated": {1: False}},
    ],
)
def test_a_number_that_stands_out_is_looked_at_soon(numbers: dict[str, dict[int, float]]) -> None:
    """Whether it does among all ranks is for the diagnosis to say, which then comes soon."""
    world = trained()
    world.done(tick=False, **numbers)  # type: ignore[arg-type]
    assert world.state.unusual
    world.tick()
    assert not world.state.unusual


def test_a_norm_that_comes_late_is_looked_at_like_any() -> None:
    """One that was read on a device, and copied without waiting."""
    world = trained()
    step = world.ranks[1].step
    world.beat(1, late=(m.LateValues(step, local_norm=1.0),))
    assert not world.state.unusual
    world.beat(1, late=(m.LateValues(step, local_norm=400.0),))
    assert world.state.unusual


def test_the_first_norms_are_looked_at_soon() -> None:
    """There is no past yet by which they could be judged."""
    world = NumericWorld(2)
    world.done(tick=False)
    assert world.state.unusual


def test_every_outlier_among_the_ranks_is_looked_at_soon() -> None:
    """What a diagnosis would call one is never left for later."""
    for factor in (30.0, 100.0, 1e4, 1e9):
        world = trained()
        world.done({1: factor}, tick=False)
        soon = world.state.unusual
        world.tick()
        assert soon or "gradient-outlier" not in world.kinds()


def test_ranks_with_the_same_data_are_looked_at_soon_once_that_is_seen() -> None:
    """It has to be so in several steps before it is said."""
    world = trained()
    world.done(prints={0: 77, 1: 77})
    world.done(prints={0: 78, 1: 78}, tick=False)
    assert world.state.unusual


def test_memory_that_rises_is_looked_at_soon() -> None:
    """When it will be full is told while there is something left."""
    world = trained()
    memory(world, 900 * MIB)
    world.tick()
    memory(world, 908 * MIB)
    assert world.state.unusual
    world.tick()
    memory(world, 700 * MIB)
    assert not world.state.unusual
