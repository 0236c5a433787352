"""Ranks that are in different collectives: which of them left its ways, and at which collective."""

import pytest

from support.collectives import BUCKET, TOKENS
from support.hangs import only, training

GATHER = "all_gather [32] float32"


@pytest.mark.parametrize(
    "wrong", ["broadcast [1] int64", "all_reduce [1024] int64", "all_reduce [1] float32", GATHER]
)
def test_one_of_four_that_does_something_else_is_the_culprit(wrong: str) -> None:
    """Operation, size and type are compared at the same number; the majority is right."""
    job = training()
    job.enters(TOKENS, ranks=(0, 2, 3)).enters(wrong, ranks=(1,), source="bad.py:3 in f").hang(0.5)
    for rank in range(4):
        job.operations(rank)
    found = only(job)
    assert (found.kind, found.severity, found.ranks) == ("collective-mismatch", "critical", [1])
    assert found.where["collective"] == "gloo:all_reduce"
    assert found.where["source"] == "bad.py:3 in f"
    assert found.step == 13


@pytest.mark.parametrize("culprit", [0, 1])
def test_of_two_ranks_the_one_that_leaves_its_own_ways_is_the_culprit(culprit: int) -> None:
    """Where counting cannot tell, the ranks' own earlier steps do."""
    job = training(ranks=2)
    other = 1 - culprit
    job.does(TOKENS, ranks=(other,)).enters(BUCKET, ranks=(other,))
    job.does(TOKENS, ranks=(culprit,)).enters(TOKENS, ranks=(culprit,), source="bad.py:3 in f")
    job.hang(0.5)
    job.operations(0).operations(1)
    assert only(job).ranks == [culprit]


def test_where_nothing_tells_it_is_said_so() -> None:
    """Two ranks, both doing what neither did before: one is named by convention, and that is
    told."""
    job = training(ranks=2)
    job.enters(GATHER, ranks=(1,)).enters("broadcast [3] int64", ranks=(0,)).hang(0.5)
    job.operations(0).operations(1)
    found = only(job)
    assert found.ranks == [1]
    assert any("cannot be known" in line for line in found.evidence)


def test_the_first_wrong_collective_counts_and_not_the_one_that_hangs() -> None:
    """Equal sizes pair up wrongly and pass; the sequences show where it began."""
    job = training()
    job.does(BUCKET, ranks=(2,)).does(TOKENS, ranks=(0, 1, 3))
    job.does(BUCKET).does(BUCKET, ranks=(0, 1, 3)).does(TOKENS, ranks=(2,))
    job.enters(TOKENS, ranks=(0, 1, 3)).enters(BUCKET, ranks=(2,)).hang(0.5)
    for rank in range(4):
        job.operations(rank)
    found = only(job)
    assert found.ranks == [2]
    assert f"#{3 * 12 + 1} " in found.evidence[0]


def test_sizes_that_differ_in_every_step_are_no_error() -> None:
    """An uneven split is the same in each step, and nothing is wrong with it."""
    job = training(ranks=2, steps=2)
    for _ in range(12):
        job.does(TOKENS).does("reduce_scatter [3] float32", ranks=(0,))
        job.does("reduce_scatter [5] float32", ranks=(1,))
        job.world.step()
    job.enters(TOKENS, ranks=(0, 1)).hang(0.5)
    job.operations(0).operations(1)
    assert job.world.findings() == []


def test_ranks_that_all_have_sizes_of_their_own_are_compared_by_operation() -> None:
    """Splits that are different on each rank are by design; another operation is not."""
    job = training(ranks=12)
    for rank in range(12):
        job.enters(f"all_to_all [{rank}] float32", ranks=(rank,))
    job.hang(0.5)
    for rank in range(12):
        job.operations(rank)
    assert [f.kind for f in job.world.findings()] in ([], ["collective-stuck"])
