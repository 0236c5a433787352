"""All ranks of an attempt have ended and their launcher has not: it may start them again."""

import pytest

from rankscope.protocol.shapes import State
from support.world import World


def over(world: World, *, launched: bool) -> World:
    """Rank 1 dies, the launcher ends the other one."""
    lives = {"launched": launched}
    world.core.launcher_lives = lambda: lives["launched"]
    for _ in range(3):
        world.step()
    world.kill(1)
    world.advance(0.2)
    world.kill(0, 15)
    return world.advance(3.0)


@pytest.mark.parametrize(("launched", "state"), [(True, "starting"), (False, "failed")])
def test_a_run_has_not_failed_while_its_launcher_lives(launched: bool, state: State) -> None:
    """Why the attempt ended is said either way; that it may go on, only then."""
    world = over(World(2), launched=launched)
    status = world.status()
    assert status.state == state
    assert status.verdict is not None
    assert (status.verdict.kind, status.verdict.ranks) == ("rank-dead", [1])
    said = "all ranks of attempt 0 have ended; their launcher is still there"
    assert status.control == (said if launched else "")
    assert (world.overview().ended_s is None) is launched
    assert (world.core.ranks_ended_s() is None) is launched  # a hub that waits, or one that may end


def test_the_launcher_s_word_ends_it() -> None:
    """And so does the launcher's own death, which nobody tells."""
    world = over(World(2), launched=True)
    world.run_end(1)
    world.advance(0.5)
    assert world.status().state == "failed"

    world = over(World(2), launched=True)
    world.core.launcher_lives = lambda: False
    world.advance(0.5)
    assert world.status().state == "failed"
    assert world.status().control == ""


def test_the_next_attempt_runs_like_the_first() -> None:
    """New ranks take over; nothing is said of the launcher any more."""
    world = over(World(2), launched=True).new_attempt()
    for _ in range(3):
        world.step()
    world.advance(0.5)
    status = world.status()
    assert (status.state, status.attempt, status.control) == ("running", 1, "")


def test_a_run_that_ended_in_order_is_finished() -> None:
    """Its launcher takes a moment to leave, and has nothing to start again."""
    world = World(2)
    world.core.launcher_lives = lambda: True
    for _ in range(3):
        world.step()
    for rank in (0, 1):
        world.finish(rank)
    world.advance(1.0)
    assert world.status().state == "finished"
