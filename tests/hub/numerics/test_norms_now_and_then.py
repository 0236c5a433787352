"""Norms that are read at some of the steps only, as large gradients are."""

import pytest

from support.numericworld import NumericWorld

NONE: dict[int, float | None] = {0: None, 1: None, 2: None}


def now_and_then(world: NumericWorld, norms: int, *, every: int = 4) -> None:
    """``norms`` steps with a norm, each after some without."""
    for _ in range(norms):
        for _ in range(every - 1):
            world.done(NONE)
        world.done()


@pytest.mark.parametrize("steps_at_once", [1, 3, 7])
def test_an_outlier_between_steps_without_norms_is_found(steps_at_once: int) -> None:
    """However many steps are compared in one go, and whichever of them has the norm."""
    for place in range(steps_at_once):
        world = NumericWorld(3)
        now_and_then(world, 8)
        for step in range(steps_at_once):
            world.done({1: 900.0} if step == place else NONE, tick=False)
        world.tick()
        assert world.finding("gradient-outlier").ranks == [1]


def test_the_past_holds_the_norms_that_there_were() -> None:
    """Steps without any neither age it nor wear it out."""
    world = NumericWorld(3)
    now_and_then(world, 8)
    before = world.state.numerics.past
    for _ in range(10):
        world.done(NONE)
    after = world.state.numerics.past
    assert (after.usual == before.usual)[:3].all()
    assert (after.top == before.top)[:3].all()
    assert not world.kinds()


def test_a_rank_that_begins_anew_has_no_past() -> None:
    """Another process of the rank is not judged by what the one before it did."""
    world = NumericWorld(3)
    now_and_then(world, 8)
    world.state.numerics.forget(1)
    usual = world.state.numerics.past.usual[:3]
    assert (usual != usual).tolist() == [False, True, False]
