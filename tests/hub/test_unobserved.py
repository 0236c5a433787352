"""Ranks that say that they go on unobserved, as when a benchmark measures what observing costs."""

import pytest

from rankscope.protocol import messages as m
from support.world import World


@pytest.fixture
def world() -> World:
    """Two ranks that have trained, and go on unobserved for ten seconds."""
    world = World(2)
    for _ in range(10):
        world.step()
    for rank in (0, 1):
        world.from_rank(rank, m.Goodbye, reason="paused", step=10)
        world.ranks[rank].mute = True
    world.replies()
    world.advance(10.0)
    return world


def test_their_silence_is_no_finding_and_nobody_asks_for_their_stacks(world: World) -> None:
    """A look from outside stops a process, which would be measured."""
    assert world.findings() == []
    assert not [one for _, one in world.replies() if isinstance(one, m.Inquire)]
    assert world.status().state == "running"


def test_they_are_back_with_their_next_beat(world: World) -> None:
    """They are not late for what they did meanwhile."""
    for rank in (0, 1):
        world.ranks[rank].mute = False
        world.beat(rank)
    assert world.findings() == []
    for _ in range(5):
        world.step()
    world.advance(1.0, moving=True)
    assert (world.status().state, world.findings()) == ("running", [])


@pytest.mark.parametrize(
    ("signal", "code", "kinds", "state"),
    [(9, None, ["rank-dead"], "failed"), (None, 0, [], "finished")],
)
def test_how_they_end_counts(
    world: World, signal: int | None, code: int | None, kinds: list[str], state: str
) -> None:
    """A death is told, and an end in order is none."""
    for rank in (0, 1):
        world.ended(rank, signal=signal, code=code)
    world.advance(2.0)
    assert ([one.kind for one in world.findings()], world.status().state) == (kinds, state)
