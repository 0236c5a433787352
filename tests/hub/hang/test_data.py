"""Ranks whose data does not come, or has run out."""

import pytest

from rankscope.protocol import messages as m
from support.collectives import TOKENS
from support.hangs import only, told, training


def test_a_rank_that_waits_for_its_batch_stalls_in_its_loader() -> None:
    """Who is in the phase of data is not merely missing."""
    job = training()
    job.world.phase(3, m.Phase.DATA)
    job.enters(TOKENS, ranks=(0, 1, 2)).hang(0.75)
    told(job, 0, 1, 2).stack(3, "data.py:5 in collate").hang(2.0)
    found = only(job)
    assert (found.kind, found.severity, found.ranks) == ("loader-stalled", "critical", [3])
    assert (found.where["source"], found.where["phase"]) == ("data.py:5 in collate", "data")


def test_loaders_that_all_stall_are_one_finding() -> None:
    """When storage is gone nobody waits for anybody, and it is said all the same."""
    job = training()
    for rank in range(4):
        job.world.phase(rank, m.Phase.DATA)
    job.hang(3.0)
    assert (only(job).kind, only(job).ranks) == ("loader-stalled", [0, 1, 2, 3])


@pytest.mark.parametrize("data_over", [True, False])
def test_data_that_ran_out_is_told_from_a_loop_that_was_left(data_over: bool) -> None:
    """Who said goodbye while the others train left early; why, its loader knows."""
    job = training(ranks=2)
    world = job.world
    world.from_rank(1, m.Goodbye, reason="finished", step=12, data_over=data_over)
    world.ranks[1].over = True
    job.enters(TOKENS, ranks=(0,)).hang(0.75)
    told(job, 0).stack(1, "train.py:90 in leave", outside=True).hang(2.5)
    found = only(job)
    assert found.kind == ("uneven-data" if data_over else "missing-collective")
    assert (found.ranks, found.victims, found.step) == ([1], [0], 13)
    assert found.where["source"] == "train.py:90 in leave"


@pytest.mark.parametrize("data_over", [True, False])
def test_a_rank_that_leaves_into_another_collective_is_found_too(data_over: bool) -> None:
    """The barrier at the end of one rank meets the next step of the other."""
    job = training(ranks=2)
    job.enters("barrier", ranks=(1,), source="train.py:90 in leave").enters(TOKENS, ranks=(0,))
    job.world.advance(0.5)
    job.world.beat(1, data_over=data_over, collectives=())
    told(job, 0).operations(1).stack(1, "train.py:90 in leave")
    job.world.now_s += 0.1
    found = only(job)
    assert found.kind == ("uneven-data" if data_over else "collective-mismatch")
    assert (found.severity, found.ranks) == ("critical", [1])
    assert found.where["source"] == "train.py:90 in leave"


def test_a_rank_that_left_before_its_peers_failed_is_the_cause_of_that() -> None:
    """Its exit code and their connection errors are consequences."""
    job = training(ranks=2)
    world = job.world
    world.from_rank(1, m.Goodbye, reason="finished", step=12, data_over=True)
    world.ranks[1].over = True
    job.enters(TOKENS, ranks=(0,)).hang(0.5)
    world.raises(0, "RuntimeError", from_peer=True, message="gloo: Connection closed by peer")
    job.operations(0, "raised")
    world.exits(1, 1).ended(0, signal=15)
    found = only(job)
    assert (found.kind, found.severity, found.ranks) == ("uneven-data", "critical", [1])
