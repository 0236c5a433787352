"""Replicas that differ: which parameter, which rank, and what cannot be known."""

import pytest

from rankscope.hub.diagnose.replica_divergence import FORWARD_S
from rankscope.hub.inquiries import CHECKSUMS
from rankscope.hub.state.numerics.replicas import FEW_CHANGES, MAX_ASKED
from rankscope.protocol import messages as m
from rankscope.protocol.messages import Stage
from support.numericworld import NumericWorld

WEIGHT = "blocks.1.mlp.up.weight"
SAME = {"token.weight": 1, WEIGHT: 2}
OTHER = {"token.weight": 1, WEIGHT: 3}


def checked(ranks: int = 4, steps: int = 5) -> NumericWorld:
    world = NumericWorld(ranks)
    for _ in range(steps):
        world.done(tick=False).checks(dict.fromkeys(range(ranks), 100 + world.step_in_work))
    return world


def test_equal_replicas_leave_nothing_but_the_step() -> None:
    """The view says up to where they were compared."""
    world = checked()
    assert world.kinds() == []
    assert world.state.numerics.replicas.pending == {}
    view = world.view("numerics")
    assert (view.replicas_checked_step, view.replicas_equal) == (5, True)


def test_the_minority_is_odd() -> None:
    """Three of four agree; the parameter is named by the checksums of both sides."""
    world = checked().done()
    values = {0: SAME, 1: OTHER}
    world.checks({0: 7, 1: 8, 2: 7, 3: 7}, values=values)
    finding = world.finding("replica-divergence")
    assert (finding.ranks, finding.victims, finding.step) == ([1], [0, 2, 3], 6)
    assert finding.where == {"parameter": WEIGHT}
    assert "3 of 4 ranks agree with each other" in finding.evidence
    assert world.view("numerics").replicas_equal is False


@pytest.mark.parametrize("odd", [0, 1])
def test_of_two_ranks_the_one_that_changed_between_updates_is_odd(odd: int) -> None:
    """Its own account tells what counting cannot."""
    world = checked(2).done()
    world.checks({odd: 8, 1 - odd: 7}, values={odd: OTHER, 1 - odd: SAME}, altered={odd: (WEIGHT,)})
    finding = world.finding("replica-divergence")
    assert (finding.ranks, finding.where) == ([odd], {"parameter": WEIGHT})
    assert any("changed on rank" in line for line in finding.evidence)


def test_a_change_told_between_two_checks_gives_step_and_rank() -> None:
    """Only the odd rank told of its step; the next check that both told of finds the difference."""
    world = checked(2).done(tick=False)
    world.checks({1: 8}, altered={1: (WEIGHT,)})
    world.clean(2).done(tick=False).checks({0: 17, 1: 18})
    finding = world.finding("replica-divergence")
    assert (finding.ranks, finding.step, finding.where) == ([1], 6, {"parameter": WEIGHT})


def test_a_change_before_they_were_equal_last_is_past() -> None:
    """Both loaded the same weights: what parts them later is something else."""
    world = checked(2).done(tick=False).checks({0: 5, 1: 5}, altered={1: (WEIGHT,)})
    world.done().checks({0: 6, 1: 7})
    assert world.finding("replica-divergence").ranks == []


def test_of_two_ranks_that_merely_differ_neither_is_accused() -> None:
    """And it is said why."""
    world = checked(2).done().checks({0: 7, 1: 8}, values={0: SAME, 1: OTHER})
    finding = world.finding("replica-divergence")
    assert (finding.ranks, finding.victims) == ([], [0, 1])
    assert "of two ranks that differ neither can be said to be the right one" in finding.evidence


def test_two_halves_are_no_majority() -> None:
    """Four ranks in two camps."""
    world = checked().done().checks({0: 7, 1: 7, 2: 8, 3: 8}, values={0: SAME, 2: OTHER})
    finding = world.finding("replica-divergence")
    assert finding.ranks == []
    assert "equal among themselves at step 6: ranks 0 and 1 | ranks 2 and 3" in finding.evidence


def test_who_loaded_other_weights_is_not_told_from_who_did_not() -> None:
    """All but one changed between updates: the majority decides, not the change."""
    world = checked().done()
    world.checks({0: 7, 1: 8, 2: 7, 3: 7}, altered={0: (WEIGHT,), 2: (WEIGHT,), 3: (WEIGHT,)})
    assert world.finding("replica-divergence").ranks == [1]


def test_names_are_asked_for_where_only_totals_were_told() -> None:
    """One rank of each camp; the answer completes the finding."""
    world = checked().done()
    world.replies()
    world.checks({0: 7, 1: 8, 2: 7, 3: 7})
    assert world.finding("replica-divergence").where == {}
    asked = {message.rank for _, message in world.replies() if isinstance(message, m.Inquire)}
    assert asked == {0, 1}
    world.done().checks({0: 9, 1: 10}, values={0: SAME, 1: OTHER})
    finding = world.finding("replica-divergence")
    assert (finding.step, finding.where) == (6, {"parameter": WEIGHT})


def test_it_stays_open_until_the_replicas_are_equal_again() -> None:
    """A broadcast of the parameters mends it."""
    world = checked().done().checks({0: 7, 1: 8, 2: 7, 3: 7})
    world.clean(5)
    assert world.kinds() == ["replica-divergence"]
    world.done().checks(dict.fromkeys(range(4), 9))
    assert world.kinds() == []
    assert world.ever() == {"replica-divergence"}


def test_a_rank_that_does_not_tell_holds_up_nothing() -> None:
    """After a while the others are compared without it."""
    world = checked().done().checks({0: 7, 1: 8, 3: 7})
    assert world.kinds() == []
    world.advance(1.5, moving=True)
    assert world.finding("replica-divergence").ranks == [1]


def test_shards_are_compared_with_their_own_replicas_only() -> None:
    """HSDP: ranks 0 and 2 hold one shard, 1 and 3 the other."""
    world = NumericWorld(4, "fsdp2")
    for step in range(4):
        world.done(tick=False)
        world.checks({0: step, 2: step}, replicas="shard 0")
        world.checks({1: 50 + step, 3: 50 + step}, replicas="shard 1")
        world.advance(1.25, moving=True)
    assert world.ever() == set()
    world.done().checks({0: 7, 2: 7}, replicas="shard 0")
    world.checks({1: 8, 3: 9}, replicas="shard 1", altered={3: (WEIGHT,)})
    world.advance(1.25, moving=True)
    assert world.finding("replica-divergence").ranks == [3]


def test_ranks_that_nothing_says_to_be_replicas_must_have_been_equal_once() -> None:
    """Stages of a pipeline hold different parameters from the start."""
    stages = NumericWorld(2)
    for step in range(4):
        stages.done(tick=False).checks({0: step, 1: 100 + step}, replicas="unwrapped")
    assert stages.ever() == set()
    assert stages.view("numerics").replicas_checked_step is None
    same = NumericWorld(2)
    same.done(tick=False).checks({0: 1, 1: 1}, replicas="unwrapped")
    same.done(tick=False).checks({0: 2, 1: 3}, replicas="unwrapped")
    assert same.kinds() == ["replica-divergence"]


def test_replicas_that_part_by_a_nan_are_its_consequence() -> None:
    """One rank's parameters go NaN before the reduction carries it on."""
    world = checked().sees(1, Stage.OPTIMIZER, WEIGHT).sees(1, Stage.UPDATED, WEIGHT).done()
    world.checks({0: 7, 1: 8, 2: 7, 3: 7})
    assert world.kinds() == ["nonfinite-optimizer"]
    assert world.ever() == {"nonfinite-optimizer"}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("phase", [m.Phase.DATA, m.Phase.FORWARD, m.Phase.OTHER])
def test_the_next_forward_is_heard_before_replicas_are_said_to_part(
    ranks: int, phase: m.Phase
) -> None:
    """Its loss would show that a NaN has parted them; one that takes long is not waited for."""
    for shows in (True, False):
        world = checked(ranks).done()
        for rank in world.ranks:
            world.phase(rank, phase)
        world.checks({0: 8, **dict.fromkeys(range(1, ranks), 7)})
        assert world.kinds() == []
        if shows:
            world.sees(0, Stage.PARAMETER, WEIGHT).sees(0, Stage.LOSS)
            world.phase(0, m.Phase.BACKWARD)
            world.now_s += FORWARD_S
            assert "replica-divergence" not in {*world.kinds(), *world.ever()}
        else:
            world.now_s += FORWARD_S
            assert world.kinds() == ["replica-divergence"]


def test_a_difference_is_worth_a_look_at_once() -> None:
    """Of a run that goes on the hub would look half a second later; not so once it is known."""
    world = checked(2).done()
    world.state.urgent = False
    told = {"first": 0, "values": (), "replicas": "world", "altered": None}
    for rank, urgent in ((0, False), (1, True)):
        world.from_rank(rank, m.Checksums, step=6, total=rank, **told)
        assert world.state.urgent is urgent
    world.tick()
    for rank in world.ranks:
        world.from_rank(rank, m.Checksums, step=7, total=rank, **told)
    assert world.state.urgent is False


def asked(world: NumericWorld) -> set[int]:
    """The ranks that were asked for checksums since the last call."""
    world.tick()
    return {
        message.rank
        for _, message in world.replies()
        if isinstance(message, m.Inquire) and CHECKSUMS in message.what
    }


@pytest.mark.parametrize("odd", [0, 1])
def test_a_change_that_one_rank_tells_of_has_all_asked_at_once(odd: int) -> None:
    """Whether they differ their next check in common shows: nobody is to wait for his turn then."""
    world = checked(2).done()
    asked(world)
    world.state.urgent = False
    told = {"first": 0, "values": (), "replicas": "world"}
    world.from_rank(odd, m.Checksums, step=6, total=8, altered=(WEIGHT,), **told)
    assert world.state.urgent
    assert asked(world) == {0, 1}
    assert world.kinds() == []


def test_a_loop_that_writes_to_its_parameters_is_asked_a_few_times_only() -> None:
    """Weights that are clipped, or swapped for an evaluation: whoever does so does so often."""
    world = checked(2)
    times = 0
    for step in range(40):
        world.done().checks({0: step, 1: step}, altered={0: (WEIGHT,), 1: (WEIGHT,)})
        world.advance(20.0, moving=True)
        world.state.urgent = False
        asked(world)
        told = {"first": 0, "values": (), "replicas": "world", "total": step}
        world.done().from_rank(0, m.Checksums, step=world.step_in_work, altered=(WEIGHT,), **told)
        times += world.state.urgent
    assert times <= FEW_CHANGES
    assert world.ever() == set()


def test_a_large_world_is_not_asked_for_one_rank() -> None:
    """Thousands would answer what a few checks later is known anyway."""
    world = checked(MAX_ASKED + 1).done()
    asked(world)
    told = {"first": 0, "values": (), "replicas": "world"}
    world.from_rank(0, m.Checksums, step=6, total=8, altered=(WEIGHT,), **told)
    assert asked(world) == set()


@pytest.mark.parametrize("phase", [m.Phase.DATA, m.Phase.FORWARD, m.Phase.OTHER])
def test_a_change_of_an_earlier_step_needs_no_further_forward(phase: m.Phase) -> None:
    """Had it been a NaN that parted them, the forwards since then would have shown it."""
    world = checked(2).done(tick=False).checks({1: 8}, altered={1: (WEIGHT,)})
    world.done().done()
    for rank in world.ranks:
        world.phase(rank, phase)
    world.checks({0: 27, 1: 28})
    finding = world.finding("replica-divergence")
    assert (finding.ranks, finding.step, finding.where) == ([1], 6, {"parameter": WEIGHT})


def test_what_all_ranks_changed_explains_no_difference() -> None:
    """Both swapped their weights; what parts them two steps later may be a NaN all the same."""
    both = {0: (WEIGHT,), 1: (WEIGHT,)}
    world = checked(2).done(tick=False).checks({0: 8}, altered=both)
    world.done(tick=False).checks({1: 9}, altered=both).done(tick=False)
    for rank in world.ranks:
        world.phase(rank, m.Phase.FORWARD)
    world.checks({0: 28, 1: 29})
    assert world.kinds() == []


def test_ranks_whose_next_forward_is_waited_for_are_asked() -> None:
    """Then they say within a tenth of a second that it is over."""
    world = checked(2).done()
    for rank in world.ranks:
        world.phase(rank, m.Phase.FORWARD)
    world.replies()
    world.checks({0: 7, 1: 8}, values={0: SAME, 1: OTHER})
    assert world.kinds() == []
    assert asked(world) == {0, 1}


def test_checksums_of_a_thousand_made_up_sets_cost_little() -> None:
    """A rank that lies about steps, parts and replicas is given a bounded place."""
    world = NumericWorld(2).clean(2)
    for lie in range(1000):
        world.from_rank(1, m.Checksums, step=lie, first=lie, total=lie, replicas=f"lie {lie}")
    assert len(world.state.numerics.replicas.pending) <= 32
    assert world.kinds() == []
