"""Why a run does not move: each kind of hang is called what it is, and nobody else is blamed."""

import pytest

from rankscope.protocol import messages as m
from rankscope.protocol.shapes import Finding
from support.collectives import BUCKET, TOKENS, Call, Job, operations
from support.world import World

GATHER = "all_gather [32] float32"


def training(ranks: int = 4, steps: int = 12, **groups: tuple[int, ...]) -> Job:
    """Ranks that have trained for a while."""
    return Job(World(ranks=ranks), {key[1:]: value for key, value in groups.items()}).steps(steps)


def told(job: Job, *ranks: int) -> Job:
    """These ranks tell what they did and where they are."""
    for rank in ranks:
        job.operations(rank).stack(rank)
    return job


def only(job: Job) -> Finding:
    findings = job.world.findings()
    assert len(findings) == 1, [(f.kind, f.headline) for f in findings]
    return findings[0]


# --- never entered ---------------------------------------------------------------------------


def test_a_rank_that_never_enters_is_missing_and_the_place_where_it_is_instead_is_named() -> None:
    """Culprit, victims, the collective they wait in, and the culprit's own line of source."""
    job = training()
    job.world.phase(2, m.Phase.FORWARD)
    job.enters(TOKENS, ranks=(0, 1, 3)).hang(0.75)
    told(job, 0, 1, 3).stack(2, "model.py:7 in forward").hang(2.0)
    found = only(job)
    assert (found.kind, found.severity) == ("missing-collective", "critical")
    assert (found.ranks, found.victims, found.step) == ([2], [0, 1, 3], 13)
    assert found.where == {
        "collective": "gloo:all_reduce",
        "source": "model.py:7 in forward",
        "phase": "forward",
    }


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
        if tenth in (5, 7):
            job.stack(2, "model.py:7 in forward")
        if tenth == 5:
            for rank in world.ranks:
                world.beat(rank)
        world.tick()
        if told_s is None and "missing-collective" in world.kinds():
            told_s = world.now_s - began_s
    assert told_s is not None
    assert told_s >= 0.7


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


@pytest.mark.parametrize("phase", [m.Phase.FORWARD, m.Phase.DATA], ids=lambda phase: phase.name)
@pytest.mark.parametrize("ending", ["the link", "the node", "a stop and then the link"])
@pytest.mark.parametrize("last_word_s", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
def test_a_rank_that_fell_silent_is_never_said_to_be_somewhere(
    phase: m.Phase, ending: str, last_word_s: float
) -> None:
    """Its last word is older than the wait, or too young to call it late; nobody knows more."""
    job = Job(World(ranks=4, per_node=3)).steps(12)
    world = job.world
    if ending == "a stop and then the link":
        world.stop(3)
        job.hang(1.0)
        world.cont(3)
    world.phase(3, phase)
    job.enters(TOKENS, ranks=(0, 1, 2))
    world.advance(last_word_s)
    world.ranks[3].mute = True
    if ending == "the node":
        world.silent_hosts.add("node-1")
    world.advance(8.0)
    told = {entry.finding.kind for entry in world.core.know.incidents.shown}
    assert told - {"rank-stopped"} == {"link-lost"}


def test_all_missing_ranks_are_named() -> None:
    """Two ranks in two places are both to blame; their victims are not."""
    job = training(ranks=6)
    job.enters(TOKENS, ranks=(0, 2, 3, 5)).hang(0.75)
    told(job, 0, 2, 3, 5).stack(1, "a.py:1 in f").stack(4, "b.py:2 in g").hang(2.0)
    found = only(job)
    assert (found.ranks, found.victims) == ([1, 4], [0, 2, 3, 5])
    assert any("a.py:1 in f" in line for line in found.evidence)
    assert any("b.py:2 in g" in line for line in found.evidence)


def test_a_majority_that_is_missing_is_to_blame_when_the_one_that_waits_did_as_always() -> None:
    """Three of four that hang in their own code are not excused by their number."""
    job = training()
    job.enters(TOKENS, ranks=(0,)).hang(0.75)
    told(job, 0).hang(2.0)
    assert only(job).ranks == [1, 2, 3]


def test_whoever_waits_for_a_rank_that_waits_elsewhere_is_a_victim() -> None:
    """The chain of waits is followed through the groups to its end."""
    job = training(ranks=4, g1=(0, 1), g2=(1, 2))
    job.enters(BUCKET, ranks=(0,), group="1").enters(BUCKET, ranks=(1,), group="2").hang(0.75)
    told(job, 0, 1).stack(2, "model.py:7 in forward").hang(2.0)
    found = only(job)
    assert (found.kind, found.ranks, found.victims) == ("missing-collective", [2], [0, 1])


def test_a_recorder_that_is_off_costs_the_name_of_the_collective_and_no_more() -> None:
    """Without operations the counts alone tell who is missing."""
    job = training(ranks=2)
    job.enters(TOKENS, ranks=(0,)).hang(3.0)
    found = only(job)
    assert (found.kind, found.ranks) == ("missing-collective", [1])
    assert "collective" not in found.where


# --- patience --------------------------------------------------------------------------------


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


# --- data ------------------------------------------------------------------------------------


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


# --- something else --------------------------------------------------------------------------


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


# --- circles and the fabric ------------------------------------------------------------------


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


# --- what others explain ---------------------------------------------------------------------


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


def test_a_mute_rank_that_is_seen_to_hold_its_gil_is_called_so() -> None:
    """Silent, alive, and read from outside: the line that keeps the interpreter."""
    job = training(ranks=2)
    job.world.ranks[1].mute = True
    job.enters(TOKENS, ranks=(0,)).hang(1.5)
    job.stack(1, "native.py:4 in call", outside=True, holds_gil=True)
    found = only(job)
    assert (found.kind, found.ranks, found.victims) == ("gil-held", [1], [0])
    assert (found.severity, found.where["source"]) == ("info", "native.py:4 in call")
    job.hang(1.0).stack(1, "native.py:4 in call", outside=True, holds_gil=True)
    assert (only(job).kind, only(job).severity) == ("gil-held", "critical")


def test_a_thread_that_goes_on_does_not_keep_the_gil() -> None:
    """Read at another line each time, it computes, and the agent's thread got no turn."""
    job = training(ranks=2)
    job.world.ranks[1].mute = True
    job.enters(TOKENS, ranks=(0,)).hang(1.5)
    for line in range(20):
        job.stack(1, f"compiler.py:{line + 1} in trace", outside=True, holds_gil=True).hang(1.0)
        assert "critical" not in [finding.severity for finding in job.world.findings()]


def test_one_reading_does_not_make_a_held_gil_critical() -> None:
    """However long ago it was: nobody knows whether it is there still."""
    job = training(ranks=2)
    job.world.ranks[1].mute = True
    job.enters(TOKENS, ranks=(0,)).hang(1.5)
    job.stack(1, "native.py:4 in call", outside=True, holds_gil=True).hang(6.0)
    assert (only(job).kind, only(job).severity) == ("gil-held", "info")


def test_in_the_first_step_a_held_gil_is_a_notice_for_half_a_minute() -> None:
    """Libraries that are loaded and code that is compiled keep it."""
    job = Job(World(ranks=2))
    job.world.ranks[1].mute = True
    job.enters(TOKENS, ranks=(0,))
    for _ in range(25):
        job.hang(1.0).stack(1, "loader.py:4 in load", outside=True, holds_gil=True)
        assert "critical" not in [finding.severity for finding in job.world.findings()]
    for _ in range(10):
        job.hang(1.0).stack(1, "loader.py:4 in load", outside=True, holds_gil=True)
    assert (only(job).kind, only(job).severity) == ("gil-held", "critical")


def test_a_garbage_collection_is_not_called_a_held_gil() -> None:
    """Seen in native frames, it is no finding for half a minute."""
    job = training(ranks=2)
    job.world.ranks[1].mute = True
    job.enters(TOKENS, ranks=(0,)).hang(1.5)
    job.stack(1, "gcmodule.c:0 in gc_collect_main", outside=True, holds_gil=True)
    assert job.world.findings() == []


def test_a_mute_rank_is_asked_from_outside_only_when_the_others_wait() -> None:
    """The reading of a rank that goes on is never wanted."""
    job = training(ranks=2)
    job.world.ranks[1].mute = True
    job.world.replies()
    job.world.advance(3.0, moving=True)
    asked = [what for _, what in job.world.replies() if isinstance(what, m.Inquire)]
    assert not [one for one in asked if "foreign_stacks" in one.what]
    job.world.advance(2.0)
    asked = [what for _, what in job.world.replies() if isinstance(what, m.Inquire)]
    assert m.Inquire(1, ("foreign_stacks",)) in asked
