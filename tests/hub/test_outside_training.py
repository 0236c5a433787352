"""A rank that is in none of training's phases is told of in words that mean something."""

from collections.abc import Callable

import pytest

from rankscope.hub.diagnose.text import OUTSIDE
from rankscope.protocol import messages as m
from support.world import World


def began() -> World:
    world = World(ranks=3)
    for _ in range(12):
        world.step(step_s=0.2)
    for rank in range(3):
        world.phase(rank, m.Phase.OTHER)
    world.tick()
    return world


def killed() -> World:
    return began().kill(1).advance(2.0)


def stopped() -> World:
    return began().stop(1).advance(3.0)


def stalled() -> World:
    return began().advance(30.0)


def raised() -> World:
    world = began()
    world.raises(1)
    return world.advance(2.0)


def interrupted() -> World:
    world = began()
    for rank in range(3):
        world.kill(rank, signal=2)
    return world.advance(5.0)


@pytest.mark.parametrize("make", [killed, stopped, stalled, raised, interrupted])
def test_no_sentence_speaks_of_the_phase_other(make: Callable[[], World]) -> None:
    """Neither what is found nor what the log keeps: it says outside of what the rank is."""
    world = make()
    told = list(world.findings())
    told += [entry.finding for entry in world.view("incidents").incidents]
    sentences = [text for one in told for text in (one.headline, *one.evidence, one.next)]
    assert sentences
    assert not [text for text in sentences if "in other" in text]
    if make not in (raised, interrupted):  # of the run as a whole no phase is told
        assert any(OUTSIDE in text for text in sentences)
