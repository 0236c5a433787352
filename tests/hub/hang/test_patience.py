"""How long a wait may be before it is spoken of, and before it is called a hang."""

import pytest

from rankscope.protocol import messages as m
from support.collectives import TOKENS, Job
from support.hangs import only, training
from support.world import World


def test_a_late_rank_is_told_of_before_it_is_called_a_hang() -> None:
    """Within a second it is a notice; a hang after two seconds, or five of the longest steps."""
    job = training()
    job.enters(TOKENS, ranks=(0, 1, 3)).hang(1.0)
    assert (only(job).kind, only(job).severity) == ("missing-collective", "info")
    job.hang(1.5)
    assert only(job).severity == "critical"


@pytest.mark.parametrize("tick_s", [0.0, 0.02, 0.05, 0.08])
def test_a_late_rank_is_told_of_in_less_than_a_second(tick_s: float) -> None:
    """It speaks when it suspects itself and when it is late, which is between two of its beats."""
    job = training()
    world = job.world
    began_s = world.now_s
    job.world.phase(2, m.Phase.FORWARD)
    job.enters(TOKENS, ranks=(0, 1, 3))
    told_s = None
    for tenth in range(1, 10):
        world.now_s = began_s + tenth / 10 + tick_s
        if tenth in (5, 6):
            job.stack(2, "model.py:7 in forward")
        if tenth == 5:
            for rank in world.ranks:
                world.beat(rank)
        world.tick()
        if told_s is None and "missing-collective" in world.kinds():
            told_s = world.now_s - began_s
    assert told_s is not None
    assert told_s >= 0.6


@pytest.mark.parametrize("steps", [1, 2, 5, 30, 61, 62, 63, 70])
def test_a_long_first_step_is_no_measure_of_what_is_late(steps: int) -> None:
    """Warm-up is long; a rank that hangs in one of the next steps is told of as in any other."""
    job = Job(World(ranks=3)).steps(1, step_s=2.0).steps(1).steps(steps)
    job.enters(TOKENS, ranks=(0, 1)).hang(1.0)
    assert (only(job).kind, only(job).severity) == ("missing-collective", "info")
    job.hang(1.5)
    assert only(job).severity == "critical"


def test_thresholds_follow_the_steps_of_the_run() -> None:
    """With steps of four seconds, ten seconds of waiting are a notice at most."""
    job = Job(World(ranks=2)).steps(6, step_s=4.0)
    job.enters(TOKENS, ranks=(0,)).hang(10.0)
    assert [f.severity for f in job.world.findings()] in ([], ["info"])
    job.hang(12.0)
    assert only(job).severity == "critical"


def test_the_notice_closes_when_the_rank_comes() -> None:
    """A rank that was merely late is no longer spoken of."""
    job = training(ranks=2)
    job.enters(TOKENS, ranks=(0,)).hang(1.0)
    assert only(job).severity == "info"
    job.does(TOKENS, ranks=(1,))
    job.completed[0] = dict(job.entered[0])
    job.statuses(0)
    job.statuses(1)
    assert job.world.findings() == []


def test_the_first_step_may_take_long() -> None:
    """Compilation and cold caches are no hang: nothing is said before a step is complete."""
    job = Job(World(ranks=2))
    job.enters(TOKENS, ranks=(0,)).hang(60.0)
    assert job.world.findings() == []


def test_what_is_declared_to_take_long_is_no_hang_and_is_called_by_its_name() -> None:
    """A rank in its evaluation is spoken of late, mildly, and as what it is in."""
    job = training(ranks=2)
    job.enters(TOKENS, ranks=(0,))
    world = job.world
    for _ in range(20):
        world.beat(1, expecting="evaluation")
        world.now_s += 0.5
        world.beat(0)
        world.tick()
    assert world.findings() == []
    for _ in range(60):
        world.beat(1, expecting="evaluation")
        world.now_s += 0.5
        world.beat(0)
        world.tick()
    found = only(job)
    assert found.severity == "info"
    assert "in evaluation" in found.headline


def test_a_rank_that_moves_is_slow_and_does_not_hang() -> None:
    """Phases that change are progress, however long the others wait."""
    job = training(ranks=2)
    job.enters(TOKENS, ranks=(0,))
    for _ in range(40):
        job.world.phase(1, m.Phase.OTHER)
        job.world.beat(0)
        job.world.now_s += 0.25
        job.world.tick()
    assert [f.kind for f in job.world.findings()] == []


def test_what_happened_while_the_hub_was_away_is_no_hang_yet() -> None:
    """After a pause of its own the hub waits for news before it accuses."""
    job = training(ranks=2)
    job.enters(TOKENS, ranks=(0,))
    job.world.now_s += 30.0
    job.world.beat(0)
    job.world.beat(1)
    assert job.world.findings() == []
