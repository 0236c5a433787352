"""A save that takes far longer than those before it, and a rank that is far behind in one."""

from typing import Any

from rankscope.hub import snapshot
from rankscope.protocol import messages as m
from rankscope.protocol import shapes
from support.world import World

TOTAL = 1_000_000


def saving(world: World, rank: int, phase: str, step: int, **fields: Any) -> None:
    told: dict[str, Any] = {"request": 0, "total_bytes": TOTAL}
    told["phase_t_s"] = world.now_s + world.ranks[rank].clock_s
    world.from_rank(rank, m.Saving, step=step, phase=phase, **(told | fields))


def everybody(world: World, phase: str, step: int, **fields: Any) -> None:
    for rank in world.ranks:
        saving(world, rank, phase, step, **fields)


def save(world: World, step: int, takes_s: float) -> None:
    """A save that succeeds after ``takes_s``."""
    everybody(world, "staging", step)
    everybody(world, "writing", step)
    world.advance(takes_s, moving=True)
    everybody(world, "done", step, path=f"/c/step-{step}", text="complete")
    world.advance(10.0, moving=True)


def slow(world: World) -> list[shapes.Finding]:
    return [one for one in world.findings() if one.kind == "checkpoint-slow"]


def test_a_save_that_takes_far_longer_than_those_before_is_told_while_it_does() -> None:
    """With the rank that is least far; by a factor and by some seconds. It closes with the save."""
    world = World(ranks=2)
    for step in (10, 20, 30):
        save(world, step, 4.0)
    everybody(world, "writing", 40, done_bytes=700_000)
    saving(world, 1, "writing", 40, done_bytes=200_000, rate_bytes_per_s=2e6)
    world.advance(11.0, moving=True)
    assert slow(world) == []
    world.advance(2.0, moving=True)
    (found,) = slow(world)
    assert found.headline == "the save of step 40 has taken 13 s so far, usually it is 4 s"
    assert (found.severity, found.ranks, found.step) == ("info", [], 40)
    assert found.evidence == ["the slowest: rank 1: writing, 200,000 of 1,000,000 bytes, 2.0 MB/s"]
    everybody(world, "done", 40, path="/c/step-40", text="complete")
    assert slow(world) == []


def test_the_first_saves_have_nothing_to_be_compared_with() -> None:
    """Nor is a second or two ever too long."""
    world = World(ranks=2)
    everybody(world, "writing", 10)
    world.advance(100.0, moving=True)
    assert slow(world) == []
    everybody(world, "done", 10, path="/c/step-10", text="complete")
    for step in (20, 30):
        save(world, step, 0.5)
    everybody(world, "writing", 40)
    world.advance(4.0, moving=True)
    assert slow(world) == []


def test_a_rank_far_behind_the_others_is_named() -> None:
    """Also in the first save; the others wait for it with their parts written."""
    world = World(ranks=4)
    everybody(world, "writing", 10)
    world.advance(3.0, moving=True)
    for rank in (0, 1, 3):
        saving(world, rank, "publishing", 10, done_bytes=TOTAL)
    world.advance(5.0, moving=True)
    assert slow(world) == []
    world.advance(2.0, moving=True)
    (found,) = slow(world)
    assert (found.severity, found.ranks, found.where) == ("warning", [2], {"phase": "writing"})
    assert found.headline == (
        "rank 2 is far behind in the save of step 10 (writing); the others were done 7 s ago"
    )
    assert found.evidence[-1] == "the others took 3 s for their parts"
    saving(world, 2, "publishing", 10, done_bytes=TOTAL)
    assert slow(world) == []


def test_a_rank_that_is_stopped_in_a_save_is_not_called_slow() -> None:
    """That is another finding."""
    world = World(ranks=4)
    everybody(world, "writing", 10)
    world.advance(3.0, moving=True)
    for rank in (0, 1, 3):
        saving(world, rank, "publishing", 10, done_bytes=TOTAL)
    world.stop(2).advance(20.0)
    assert slow(world) == []
    assert "checkpoint-failed" in world.kinds()


def test_a_rank_alone_in_a_save_is_behind_nobody() -> None:
    """The others may not have come to the boundary yet, or are done with the save."""
    world = World(ranks=2)
    saving(world, 1, "writing", 10)
    world.advance(60.0, moving=True)
    assert slow(world) == []


def test_what_is_usual_outlives_the_hub() -> None:
    """And so does since when the save in work is."""
    world = World(ranks=2)
    for step in (10, 20):
        save(world, step, 1.0)
    everybody(world, "writing", 30)
    world.core.state = snapshot.load(snapshot.dump(world.state))
    world.core.know.state = world.core.state
    world.advance(8.0, moving=True)
    assert len(slow(world)) == 1
