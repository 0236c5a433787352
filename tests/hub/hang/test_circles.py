"""Groups that wait for each other, and a collective that all have entered and none leaves."""

from support.collectives import BUCKET
from support.hangs import only, told, training


def test_two_groups_in_opposite_order_are_a_deadlock() -> None:
    """Each waits in the group that the other has not come to; the fewer are to blame."""
    everyone = (0, 1, 2, 3)
    job = training(ranks=4, g1=everyone, g2=everyone)
    job.enters(BUCKET, ranks=(0, 1, 2), group="1").enters(BUCKET, ranks=(3,), group="2").hang(1.0)
    told(job, *everyone)
    found = only(job)
    assert (found.kind, found.severity, found.ranks) == ("group-deadlock", "critical", [3])
    assert found.where["collective"] == "gloo:all_reduce"


def test_a_collective_that_all_have_entered_and_none_leaves_is_stuck() -> None:
    """With equal operations on all members there is no culprit."""
    job = training()
    job.enters(BUCKET).hang(0.75)
    told(job, 0, 1, 2, 3).hang(2.0)
    found = only(job)
    assert (found.kind, found.severity) == ("collective-stuck", "critical")
    assert (found.ranks, found.victims) == ([], [0, 1, 2, 3])
