"""Looking for the hub from within a rank."""

import pytest

from rankscope.agent.hublink import HubFinder
from rankscope.agent.identity import Identity
from rankscope.protocol import env


def test_where_no_run_can_be_kept_training_goes_on_unwatched(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Said once, with the variable that is to be changed."""
    identity = Identity(rank=0, world_size=1, local_rank=0, attempt=0)
    finder = HubFinder(identity, "x", {env.HOME: "~no-such-user/x"})
    assert [finder.poll(float(now)) for now in range(3)] == [None] * 3
    (said,) = caplog.messages
    assert "training goes on unwatched" in said
    assert f"{env.HOME}=~no-such-user/x" in said
