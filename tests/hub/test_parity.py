"""After a restart: whether losses and data are what they were, to the bit."""

import math
import struct
from collections.abc import Callable

import pytest

from rankscope.hub import snapshot
from rankscope.hub.state.parity import CELLS, MOST_STEPS, Parity, bits, loss_of
from rankscope.protocol import messages as m
from rankscope.protocol import shapes
from support.world import World

Value = Callable[[int, int], float | int | None]


def loss(step: int, rank: int) -> float:
    return 3.0 / step + rank / 7


def batch(step: int, rank: int) -> int | None:
    """Fingerprints are not taken at every step."""
    return 1000 * step + rank if step % 4 == 0 else None


def run(world: World, last: int, losses: Value = loss, batches: Value = batch) -> World:
    """All ranks complete the steps up to ``last``."""
    while (step := world.ranks[0].step + 1) <= last:
        world.now_s += 0.2
        for rank, sim in world.ranks.items():
            sim.step = step
            sim.activity += 4
            record = m.StepRecord(
                *(step, world.now_s + sim.clock_s, 0.2, 0.0, 0.1, 0.1, 0.0, 0.0, 1),
                loss=losses(step, rank),
                fingerprint=batches(step, rank),  # type: ignore[arg-type]
            )
            world.beat(rank, steps=(record,))
    world.tick()
    return world


def again(world: World, start: int) -> World:
    """The launcher starts all ranks anew, which go on from step ``start``."""
    for rank in world.ranks:
        world.kill(rank)
    world.new_attempt()
    for rank, sim in world.ranks.items():
        sim.step = start
        world.hello(rank, start_step=start)
    return world


def parity(world: World) -> shapes.Parity:
    found = world.view("checkpoints").parity
    assert isinstance(found, shapes.Parity)
    return found


def entries(world: World) -> list[str]:
    """What the incident log holds of it."""
    world.tick()
    found = world.view("incidents").incidents
    return [
        one.finding.headline
        for one in found
        if one.finding.kind == "parity" and one.event == "opened"
    ]


def test_a_run_that_goes_on_as_it_was_is_bitwise_equal() -> None:
    """Told in each view and, once nothing more can be compared, in the incident log."""
    world = run(World(ranks=2), 24)
    assert world.view("checkpoints").parity is None
    assert world.status().parity == ""
    again(world, 12)
    assert world.status().parity == ""
    run(world, 20)
    text = "parity: 8 steps bitwise equal (13 to 20)"
    assert world.status().parity == f"{text} so far"
    assert entries(world) == []
    run(world, 30)
    found = parity(world)
    assert found.text == "parity: 12 steps bitwise equal (13 to 24)"
    assert (found.over, found.steps, found.batches) == (True, 12, 3)
    assert (found.first_step, found.last_step, found.difference) == (13, 24, None)
    assert world.overview().parity == found.text
    assert entries(world) == [found.text]
    assert "parity" not in world.kinds()


def test_the_first_difference_is_named_with_its_step_and_rank() -> None:
    """However small, and whichever rank told of it first."""
    world = again(run(World(ranks=3), 20), 10)

    def other(step: int, rank: int) -> float:
        value = loss(step, rank)
        return math.nextafter(value, 9.0) if step > 15 or (step, rank) == (15, 2) else value

    run(world, 20, losses=other)
    found = parity(world)
    assert found.difference is not None
    assert (found.difference.step, found.difference.rank, found.difference.what) == (15, 2, "loss")
    assert found.difference.before == loss(15, 2)
    assert found.text.startswith("parity: first differs at step 15: rank 2 has loss 0.48571")
    assert "they differ by" in found.text
    assert found.text.endswith("4 steps before it bitwise equal")
    assert entries(world) == [found.text]


def test_other_data_go_before_the_loss_they_make() -> None:
    """At the same step, on whatever rank."""
    world = again(run(World(ranks=2), 12), 4)
    run(
        world,
        12,
        losses=lambda step, rank: loss(step, rank) + (step >= 8),
        batches=lambda step, rank: 5 if (step, rank) == (8, 1) else batch(step, rank),
    )
    found = parity(world)
    assert found.text == (
        "parity: first differs at step 8: rank 1 got another batch; 3 steps before it bitwise equal"
    )
    assert found.difference is not None
    assert found.difference.before == f"{8001:016x}"


def test_values_that_are_not_finite_or_come_late_are_compared_too() -> None:
    """NaN is equal to NaN; what comes off a device after its step's record counts the same."""
    world = World(ranks=1)
    for start, late in ((0, 5.0), (2, 5.0)):
        if start:
            again(world, start)
        run(world, 6, losses=lambda step, rank: math.nan if step == 5 else None)
        values = tuple(m.LateValues(step, loss=late) for step in (3, 4, 6))
        world.beat(0, late=values)
    world.tick()
    assert parity(world).text == "parity: 4 steps bitwise equal (3 to 6)"
    again(world, 5)
    run(world, 6, losses=lambda step, rank: None)
    world.beat(0, late=(m.LateValues(6, loss=4.0),))
    assert "step 6: rank 0 has loss 4, before it was 5" in parity(world).text


def test_another_number_of_ranks_is_not_compared() -> None:
    """What a rank's share is depends on how many there are."""
    world = run(World(ranks=2), 8)
    for rank in (0, 1):
        world.kill(rank)
    del world.ranks[1]
    world.size = 1
    run(again(world, 4), 8)
    assert parity(world).text == (
        "parity: not compared, as there were 2 ranks then and there are 1 now"
    )


def test_an_attempt_that_dies_early_leaves_what_was_known_before() -> None:
    """The next one is compared with the newest that was told of each step."""
    world = run(World(ranks=2), 20)
    run(again(world, 10), 12)
    run(again(world, 10), 20)
    assert parity(world).text == "parity: 10 steps bitwise equal (11 to 20)"


def test_ranks_that_are_started_again_by_hand_are_compared_when_they_resume() -> None:
    """Not so another training in the same process, which begins at step 1."""
    world = run(World(ranks=2), 10)
    for rank, sim in world.ranks.items():
        world.kill(rank)
        sim.pid, sim.seq, sim.step, sim.over, sim.state = sim.pid + 50, 0, 5, False, "alive"
        world.hello(rank, start_step=5)
    run(world, 10)
    assert parity(world).text == "parity: 5 steps bitwise equal (6 to 10)"
    for rank, sim in world.ranks.items():
        world.goodbye(rank)
        sim.seq, sim.step, sim.over = 0, 0, False
        world.hello(rank)
    run(world, 10, losses=lambda step, rank: 1.0)
    assert world.view("checkpoints").parity is None


def test_it_outlives_the_hub() -> None:
    """What was compared, and what is still to be."""
    world = again(run(World(ranks=2), 20), 10)
    run(world, 14)
    world.core.state = snapshot.load(snapshot.dump(world.state))
    world.core.know.state = world.core.state
    run(world, 21)
    assert parity(world).text == "parity: 10 steps bitwise equal (11 to 20)"


def test_a_snapshot_that_does_not_fit_is_refused() -> None:
    """It may come from a stranger's file."""
    part = Parity()
    part.reserve(2)
    saved = part.dump()
    for name, value in (("kept", 7), ("columns", struct.pack("<q", 4000)), ("own", b"123")):
        with pytest.raises(ValueError, match=r".*"):
            Parity().load(saved | {name: value})


def test_a_rank_that_is_behind_is_waited_for_and_a_lost_word_is_not() -> None:
    """One line in the log, with all that there is to say."""
    world = again(run(World(ranks=2), 20), 10)
    for step in (11, 12):
        for rank in (0, 1):
            record = m.StepRecord(step, 0.0, 0.2, 0.0, 0.1, 0.1, 0.0, 0.0, 1, loss=loss(step, rank))
            if (step, rank) != (12, 1):
                world.beat(rank, step=step, steps=(record,))
    for sim in world.ranks.values():
        sim.step = 12
    run(world, 30)
    assert entries(world) == []
    assert parity(world).text == "parity: 9 steps bitwise equal (11 to 20) so far"
    run(world, 90)
    assert entries(world) == ["parity: 9 steps bitwise equal (11 to 20)"]


def test_what_is_kept_is_bounded() -> None:
    """In a large world fewer steps of each rank; none is ever taken for another."""
    part = Parity()
    part.reserve(16_384)
    assert part.kept * 16_384 <= CELLS
    small = Parity()
    small.reserve(1)
    for step in (1, 1 + MOST_STEPS):
        record = m.StepRecord(step, 0.0, 0.2, 0.0, 0.1, 0.1, 0.0, 0.0, 1, loss=1.0)
        small.record(0, record, 1)
        small.forget_all()
    assert (small.first, small.equal) == (0, {})


def test_the_bits_of_a_loss() -> None:
    """There and back; a minus zero is kept as zero."""
    for value in (0.1, -3.5, math.inf, 5e-324):
        assert loss_of(bits(value)) == value
    assert bits(-0.0) == bits(0.0)
