"""What has another cause is no hang of its own, and the cause of one stays the verdict."""

import pytest

from rankscope.protocol import messages as m
from support.collectives import TOKENS
from support.hangs import only, told, training


@pytest.mark.parametrize("how", ["timeout", "watchdog"])
def test_the_cause_of_a_hang_stays_the_verdict_when_the_others_give_up(how: str) -> None:
    """A timeout ends those who waited and then the launcher all others: consequences."""
    job = training()
    job.world.phase(2, m.Phase.FORWARD)
    job.enters(TOKENS, ranks=(0, 1, 3)).hang(0.75)
    told(job, 0, 1, 3).stack(2, "model.py:7 in forward").hang(30.0)
    world = job.world
    if how == "timeout":
        message = "gloo: Timed out waiting 30000ms for recv operation to complete"
        world.raises(0, "RuntimeError", from_peer=True, message=message)
        world.exits(0, 1)
    else:
        world.kill(0, signal=6)
    before = only(job)
    assert (before.kind, before.ranks) == ("missing-collective", [2])
    world.advance(0.25)
    for rank in (1, 2, 3):
        world.kill(rank, signal=15)
    world.now_s += 2.0
    found = only(job)
    assert (found.kind, found.severity, found.ranks) == ("missing-collective", "critical", [2])
    assert found.where["source"] == "model.py:7 in forward"


def test_a_stopped_rank_explains_why_the_others_wait() -> None:
    """A finding names the first bad thing once."""
    job = training()
    job.world.stop(1)
    job.enters(TOKENS, ranks=(0, 2, 3)).hang(4.0)
    assert (only(job).kind, only(job).victims) == ("rank-stopped", [0, 2, 3])


def test_a_rank_that_goes_on_after_a_stop_is_not_called_missing() -> None:
    """It has its time to move again."""
    job = training(ranks=2)
    job.world.stop(1)
    job.enters(TOKENS, ranks=(0,)).hang(8.0)
    job.world.cont(1)
    job.world.advance(0.5)
    assert job.world.findings() == []
