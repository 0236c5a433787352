"""The views of stacks and collectives, as the hub builds them."""

from typing import Any

import pytest

from rankscope.protocol import messages as m
from rankscope.protocol import shapes
from support.collectives import BUCKET, TOKENS, Job
from support.world import World


def hung(ranks: int = 4) -> Job:
    """All ranks but the last wait in a collective, and have told where they are."""
    job = Job(World(ranks=ranks)).steps(6)
    job.enters(TOKENS, ranks=range(ranks - 1)).hang(0.75)
    for rank in range(ranks - 1):
        job.operations(rank).stack(rank)
    return job.stack(ranks - 1, "model.py:7 in forward").hang(2.0)


def stacks(job: Job, **args: int) -> shapes.StacksView:
    view = job.world.view("stacks", **args)
    assert isinstance(view, shapes.StacksView)
    return view


def collectives(job: Job, **args: int) -> shapes.Collectives:
    view = job.world.view("collectives", **args)
    assert isinstance(view, shapes.Collectives)
    return view


def test_equal_stacks_are_one_and_the_odd_one_stands_on_top() -> None:
    """Thousands of ranks in one place read as one line."""
    first, second = stacks(hung()).groups
    assert (first.ranks, first.source) == ([3], "model.py:7 in forward")
    assert (second.ranks, second.source) == ([0, 1, 2], "train.py:20 in train")


def test_of_two_ranks_the_one_to_blame_stands_on_top() -> None:
    """Where both places are equally rare the verdict decides."""
    assert [group.ranks for group in stacks(hung(2)).groups] == [[1], [0]]


def test_a_look_at_the_stacks_asks_the_ranks() -> None:
    """Who speaks is asked itself; who does not is read by its sentinel."""
    job = Job(World(ranks=3)).steps(3)
    job.world.ranks[2].mute = True
    job.world.advance(1.5)
    stacks(job, refresh=1)
    job.world.replies()
    job.world.now_s += 1.0
    for rank in (0, 1):
        job.world.beat(rank)
    stacks(job, refresh=1)
    job.world.tick()
    asked = {message for _, message in job.world.replies() if isinstance(message, m.Inquire)}
    assert m.Inquire(2, ("foreign_stacks",)) in asked
    assert {one.rank for one in asked if "stacks" in one.what} == {0, 1}


def test_all_threads_of_one_rank_are_told_when_it_is_asked_for() -> None:
    """The argument ``rank`` narrows the view and widens what is told."""
    view = stacks(hung(), rank=3)
    assert [group.ranks for group in view.groups] == [[3]]
    assert view.threads["MainThread"][0].function == "forward"


def test_why_a_rank_cannot_be_read_is_told() -> None:
    """No permission is no secret, and says what to change."""
    job = Job(World(ranks=2)).steps(3)
    job.world.from_node(
        "node-0",
        m.ForeignStacks,
        attempt=0,
        rank=1,
        pid=1001,
        threads=(),
        native=False,
        error="not allowed: set kernel.yama.ptrace_scope to 1",
    )
    view = stacks(job)
    assert view.missing == [0, 1]
    assert view.notes == ["rank 1: not allowed: set kernel.yama.ptrace_scope to 1"]


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize(
    "reading",
    [
        {"threads": (), "error": "the process has ended"},
        {"threads": (m.Thread("thread 16866", True, (), True),)},
        {"threads": (m.Thread("thread 7", False, (), None),)},
    ],
)
def test_a_reading_without_frames_takes_nothing_from_one_that_has_them(
    reading: dict[str, Any], ends: bool
) -> None:
    """The same rank in the same standstill: alive still, or as its process ends."""
    job = Job(World(ranks=2)).steps(6)
    job.enters(TOKENS, ranks=(0,)).hang(2.0)
    job.stack(1, "hang.py:51 in take_twice", outside=True).hang(1.0)
    if ends:
        job.world.kill(1, signal=2)
    sim = job.world.ranks[1]
    job.world.from_node(
        sim.host,
        m.ForeignStacks,
        **({"native": False, "attempt": 0, "rank": 1, "pid": sim.pid} | reading),
    )
    (group,) = stacks(job, rank=1).groups
    assert (group.source, group.from_outside) == ("hang.py:51 in take_twice", True)
    assert group.frames[0].function == "take_twice"
    assert group.age_s >= 1.0


def test_a_rank_that_went_on_is_not_where_it_was_read() -> None:
    """A later reading without frames says that nobody knows where it is now."""
    job = Job(World(ranks=2)).steps(6)
    job.stack(1, "hang.py:51 in take_twice", outside=True).hang(0.5).steps(2)
    sim = job.world.ranks[1]
    job.world.from_node(
        sim.host,
        m.ForeignStacks,
        native=False,
        attempt=0,
        rank=1,
        pid=sim.pid,
        threads=(),
        error="why",
    )
    assert stacks(job, rank=1).groups == []


LEAVING = "gc.py:9 in collect"


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("why", ["KeyboardInterrupt", "SignalException", "RuntimeError"])
def test_how_an_interpreter_leaves_is_not_where_the_rank_hung(why: str, inside: bool) -> None:
    """A rank that an exception has ended is read once more on its way out."""
    job = Job(World(ranks=2)).steps(6)
    job.enters(TOKENS, ranks=(0,)).hang(2.0)
    job.stack(1, "hang.py:51 in take_twice", outside=not inside).hang(1.0)
    job.world.raises(1, why)
    job.hang(0.5).stack(1, LEAVING, outside=True)
    job.world.exits(1, 1)
    (group,) = stacks(job, rank=1).groups
    assert group.frames[0].function == "take_twice"


@pytest.mark.parametrize("how", ["raises", "goodbye"])
def test_where_a_rank_is_that_had_gone_on_is_where_it_was_read_last(how: str) -> None:
    """What was read before it went on is no answer, nor for one that is stuck as it leaves."""
    job = Job(World(ranks=2)).steps(6)
    job.stack(1, "hang.py:51 in take_twice").hang(0.5).steps(2)
    if how == "goodbye":
        job.stack(1, "train.py:20 in train")
    getattr(job.world, how)(1)
    job.hang(0.5).stack(1, LEAVING, outside=True)
    (group,) = stacks(job, rank=1).groups
    assert group.frames[0].function == "collect"


def test_of_a_run_that_is_over_stacks_are_as_old_as_at_its_end() -> None:
    """However much later somebody looks."""
    job = hung(2)
    before = stacks(job).groups[0].age_s
    for rank in (0, 1):
        job.world.kill(rank, signal=2)
    job.world.run_end(130)
    job.world.advance(50.0)
    view = stacks(job)
    assert view.ended
    assert not stacks(hung(2)).ended
    assert view.groups[0].age_s == pytest.approx(before, abs=1.0)


def test_who_is_behind_and_who_waits_in_what_is_a_line_a_group() -> None:
    """Numbers from the ranks' counts, the operation from those who told it."""
    (group,) = collectives(hung()).groups
    assert (group.enqueued_least, group.enqueued_most) == (18, 19)
    assert (group.behind, group.waiting) == ([3], [0, 1, 2])
    assert group.operation == "all_reduce [1] int64"
    assert group.source == "train.py:20 in train"


@pytest.mark.parametrize("step_s", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("first", [(0,), (0, 1, 2), (3,)])
def test_ranks_that_do_not_come_quite_together_are_not_behind(
    step_s: float, first: tuple[int, ...]
) -> None:
    """At no moment of a healthy run, however late each is heard; in a hang they are."""
    job = Job(World(ranks=4)).steps(8, step_s=step_s)
    for _ in range(4):
        job.enters(TOKENS, ranks=first)
        for part in (0.1, 0.4):
            job.world.now_s += part * step_s
            (group,) = collectives(job).groups
            assert (group.behind, group.waiting) == ([], [])
        job.does(TOKENS, ranks=[rank for rank in range(4) if rank not in first])
        for rank in range(4):
            job.completed[rank] = dict(job.entered[rank])
        job.steps(1, step_s=step_s)
    job.enters(TOKENS, ranks=first).hang(2.0 + 4 * step_s)
    (group,) = collectives(job).groups
    assert group.behind == [rank for rank in range(4) if rank not in first]
    assert group.waiting == list(first)


def test_of_a_run_that_is_over_it_stays_told_who_was_behind() -> None:
    """However shortly before its end that was."""
    job = Job(World(ranks=2)).steps(8)
    job.enters(TOKENS, ranks=(0,))
    job.world.kill(1).advance(0.1)
    job.world.kill(0).advance(1.0)
    job.world.run_end(1)
    job.world.advance(1.0)
    (group,) = collectives(job).groups
    assert (group.behind, group.waiting) == ([1], [0])


def test_the_newest_collectives_of_one_rank_are_listed() -> None:
    """With ``rank``: oldest first, and whether each is complete."""
    view = collectives(hung(), rank=0)
    newest = view.operations[-1]
    assert (newest["seq"], newest["state"], newest["name"]) == (19, "scheduled", "gloo:all_reduce")
    assert view.operations[-2]["state"] == "completed"


def test_the_verdict_is_part_of_the_view() -> None:
    """Findings of this field, and of no other."""
    assert [finding.kind for finding in collectives(hung()).findings] == ["missing-collective"]


@pytest.mark.parametrize("view", ["stacks", "collectives"])
def test_a_run_without_ranks_has_empty_views(view: str) -> None:
    """Nothing is known yet, and that is no error."""
    world = World(ranks=2, hello=False)
    assert not world.view(view).groups


def test_evidence_outlives_the_ranks_and_the_hub() -> None:
    """What was told stays when the ranks have ended, also in a snapshot."""
    from rankscope.hub import snapshot

    job = hung()
    for rank in range(4):
        job.world.kill(rank)
    copy = snapshot.load(snapshot.dump(job.world.state))
    assert copy.stacks.newest(3) == job.world.state.stacks.newest(3) is not None
    assert copy.operations.at(0, "0", 18) == job.world.state.operations.at(0, "0", 18)
    assert copy.operations.at(0, "0", 18).text() == BUCKET  # type: ignore[union-attr]
    assert snapshot.dump(copy) == snapshot.dump(job.world.state)
