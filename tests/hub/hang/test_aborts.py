"""A rank that gloo aborts: whether it, or a neighbour, did something else."""

import pytest

from rankscope.protocol import messages as m
from support.collectives import BUCKET, TOKENS, Call, Job, operations
from support.hangs import only, training


def test_an_innocent_neighbour_that_gloo_aborts_is_a_victim() -> None:
    """Rank 0 dies of SIGABRT in a collective that rank 1 called with other sizes."""
    job = training(ranks=2)
    job.enters(TOKENS, ranks=(0,)).enters("all_reduce [1024] int64", ranks=(1,))
    job.hang(0.25)
    world = job.world
    world.kill(0, signal=6)
    assert world.findings() == []  # rank 1 may still tell
    world.raises(1, "RuntimeError", from_peer=True, message="gloo: Connection reset by peer")
    job.operations(1, "raised")
    found = only(job)
    assert (found.kind, found.ranks, found.victims) == ("collective-mismatch", [1], [0])


def test_a_rank_that_aborts_is_known_by_what_it_left_where_nobody_else_could_tell() -> None:
    """Its own calls and its own earlier steps are enough, though torch's calls are not among
    them."""
    job = training(ranks=2, steps=6)
    job.operations(0).operations(1)
    job.steps(6)
    job.does(TOKENS).enters(TOKENS, ranks=(1,), source="bad.py:3 in f").hang(0.25)
    world = job.world
    world.kill(1, signal=6).ended(0, signal=15)
    own = [call for call in job.calls[1][18:] if call[2] == TOKENS]
    world.from_node(
        "node-0",
        m.ForeignStacks,
        attempt=0,
        rank=1,
        pid=1001,
        threads=(),
        native=False,
        operations=operations(own, {}, world.now_s),
    )
    found = only(job)
    assert (found.kind, found.ranks, found.victims) == ("collective-mismatch", [1], [0])
    assert found.where["source"] == "bad.py:3 in f"
    assert BUCKET in found.evidence[1]


def test_a_rank_that_aborts_by_itself_has_died() -> None:
    """Where the others did as always, the abort is the rank's own."""
    job = training(ranks=2)
    job.enters(TOKENS, ranks=(0,)).hang(0.25)
    job.world.kill(1, signal=6)
    job.world.raises(0, "RuntimeError", from_peer=True, message="gloo: Connection reset by peer")
    job.operations(0, "raised")
    job.world.now_s += 1.0
    assert (only(job).kind, only(job).ranks) == ("rank-dead", [1])


def aborted(*, box: bool) -> Job:
    """Rank 1 aborts and rank 0 feels it and tells all; ``box``: it comes what rank 1 left."""
    job = training(ranks=2)
    job.enters(TOKENS, ranks=(0,)).hang(0.25)
    job.world.kill(1, signal=6)
    job.world.raises(0, "RuntimeError", from_peer=True, message="gloo: Connection reset by peer")
    job.operations(0, "raised")
    own = [call for call in job.calls[1] if call[2] == TOKENS]
    if box:
        job.left_behind(1, own)
    return job


def test_an_abort_is_told_as_soon_as_everybody_has_said_what_he_did() -> None:
    """No time has to go by when nothing more can be learned."""
    found = only(aborted(box=True))
    assert (found.kind, found.ranks, found.victims) == ("rank-dead", [1], [0])


def test_an_abort_is_kept_back_while_somebody_may_still_tell() -> None:
    """What the dead rank left may yet explain it; and then for a second at most."""
    job = aborted(box=False)
    assert job.world.findings() == []
    job.world.now_s += 1.0
    assert (only(job).kind, only(job).ranks) == ("rank-dead", [1])


def test_nothing_is_awaited_of_a_rank_that_left_nothing() -> None:
    """Its sentinel, which would have sent it before, reports again."""
    job = aborted(box=False)
    assert job.world.findings() == []
    job.world.report("node-0")
    assert (only(job).kind, only(job).ranks) == ("rank-dead", [1])


def test_what_was_told_before_the_abort_says_nothing_of_it() -> None:
    """Ranks that were asked earlier, to learn their ways, have not told what they did now."""
    job = training(ranks=2)
    job.operations(0).operations(1).enters(TOKENS, ranks=(0,)).hang(0.25)
    job.world.kill(1, signal=6)
    assert job.world.findings() == []


@pytest.mark.parametrize("told", [(0,), (0, 1)])
@pytest.mark.parametrize("how", ["raises", "aborts"])
def test_what_was_odd_and_completed_long_ago_broke_nothing(told: tuple[int, ...], how: str) -> None:
    """The last collective that ranks have told of was one that they do now and then; they went on
    after it, so it says nothing of what failed: whatever did is not told yet."""
    job = training(ranks=2).does("all_reduce [3] int64")
    for rank in told:
        job.operations(rank)
    job.steps(3)
    if how == "raises":
        job.world.raises(0, "RuntimeError", from_peer=True, message="gloo: Connection reset")
    else:
        job.world.kill(0, signal=6)
    assert job.world.findings() == []


@pytest.mark.parametrize("phase", [m.Phase.DATA, m.Phase.FORWARD, m.Phase.OTHER])
def test_whoever_a_rank_lost_in_a_collective_may_have_died(phase: m.Phase) -> None:
    """That it stood for a moment before, and others waited for it, is no hang: its sentinel has not
    told its end yet."""
    job = training(ranks=2)
    world = job.world
    world.phase(0, phase)
    job.stack(0).enters(BUCKET, ranks=(1,)).hang(0.5)
    world.from_rank(
        1,
        m.Raised,
        type="RuntimeError",
        message="gloo: Connection closed by peer",
        traceback="",
        source="train.py:20 in train",
        step=12,
        phase=m.Phase.BACKWARD,
        from_peer=True,
        event_t_s=world.now_s + world.ranks[1].clock_s,
    )
    assert "critical" not in {found.severity for found in world.findings()}
    world.goodbye(1, "exception").exits(0, 0, ago_s=0.1)
    world.advance(0.6)
    assert (only(job).kind, only(job).ranks) == ("rank-dead", [0])
    grave = [one.finding.kind for one in world.log() if one.finding.severity == "critical"]
    assert grave == ["rank-dead"]


def own_calls(job: Job, rank: int) -> list[Call]:
    """Those of the rank's own code."""
    return [(*call[:3], "train.py:20 in train") for call in job.calls[rank] if call[2] == TOKENS]


WENT_ON: Call = ("", 0, "went_on", "")


def went_past(job: Job, rank: int, every: int = 1) -> list[Call]:
    """What the rank leaves: its own calls, one in so many steps, and that it went on after each;
    and at last that it went on without one."""
    own = own_calls(job, rank)[::every]
    course = [event for call in own for event in (call, *[WENT_ON] * 2 * every)]
    return [*course, *[WENT_ON] * 2]


def test_a_rank_that_went_past_a_call_explains_the_abort_of_its_innocent_neighbour() -> None:
    """Neither could say what it was in: the one was aborted, the other ended by its launcher."""
    job = training(ranks=2).operations(0)
    job.world.phase(1, m.Phase.BACKWARD)
    job.hang(0.25)
    at = job.entered[0]["0"] + 1
    job.world.kill(0, signal=6).ended(1, signal=15)
    own = own_calls(job, 0)
    job.left_behind(0, [*own, ("0", at, TOKENS, "train.py:20 in train")])
    job.left_behind(1, went_past(job, 1))
    found = only(job)
    assert (found.kind, found.ranks, found.victims) == ("collective-mismatch", [1], [0])
    assert (found.where["collective"], found.where["phase"]) == ("gloo:all_reduce", "backward")
    assert found.evidence[0].startswith(f"#{at} of the default group on rank 1:")


@pytest.mark.parametrize("how", ["in order", "by turns", "too few"])
def test_a_rank_that_went_past_nothing_does_not_explain_an_abort(how: str) -> None:
    """Its calls come where they always did; or they come only in every other step; or there were
    too few to know."""
    every, cut = {"in order": (1, 2), "by turns": (2, 4), "too few": (1, 0)}[how]
    job = training(ranks=2, steps=2 if how == "too few" else 12).hang(0.25)
    job.world.kill(0, signal=6).ended(1, signal=15)
    at = job.entered[0]["0"] + 1
    job.left_behind(0, [*own_calls(job, 0)[::every], ("0", at, TOKENS, "train.py:20 in train")])
    course = went_past(job, 1, every)
    job.left_behind(1, course[: len(course) - cut])
    job.world.now_s += 1.0
    assert (only(job).kind, only(job).ranks) == ("rank-dead", [0])


def test_collectives_that_a_sentinel_finds_of_a_dead_rank_count() -> None:
    """What a rank left behind tells what it did before gloo aborted it."""
    job = training(ranks=2)
    job.enters(TOKENS, ranks=(0,)).enters("all_reduce [1] float32", ranks=(1,)).hang(0.25)
    world = job.world
    world.kill(1, signal=6)
    world.raises(0, "RuntimeError", from_peer=True, message="gloo: Connection reset by peer")
    job.operations(0, "raised")
    (call,) = job.calls[1][-1:]
    world.from_node(
        "node-0",
        m.ForeignStacks,
        attempt=0,
        rank=1,
        pid=1001,
        threads=(),
        native=False,
        operations=(m.Operation("0", call[1], "gloo:all_reduce", "[1]", "float32", "scheduled"),),
    )
    found = only(job)
    assert (found.kind, found.ranks, found.victims) == ("collective-mismatch", [1], [0])
