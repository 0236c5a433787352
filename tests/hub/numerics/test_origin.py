"""Where a number that is not finite came from: the first bad stage on the first rank."""

import itertools
import random

import pytest

from rankscope.protocol.messages import Stage
from support.numericworld import NumericWorld

WEIGHT = "blocks.1.mlp.up.weight"
EVERYBODY = range(4)


def world(trainer: str = "ddp", ranks: int = 4) -> NumericWorld:
    return NumericWorld(ranks, trainer).clean(10)


def infected(play: NumericWorld) -> NumericWorld:
    """What a bad gradient does from the reduction on, and to the next two steps."""
    ranks = list(play.ranks)
    play.sees(ranks, Stage.REDUCED, WEIGHT)
    play.sees(ranks, Stage.UPDATED, WEIGHT, note="so was its gradient")
    play.done({rank: float("nan") for rank in ranks[-1:]})
    for _ in range(2):
        play.sees(ranks, Stage.FORWARD, "token", microbatch=1)
        play.sees(ranks, Stage.LOSS, microbatch=1)
        play.sees(ranks, Stage.PARAMETER, WEIGHT)
        play.sees(ranks, Stage.GRADIENT, WEIGHT, microbatch=1)
        play.done(dict.fromkeys(ranks, float("nan")))
    return play


def test_a_batch_with_a_nan_is_the_origin_of_all_it_spoils() -> None:
    """Input, then what the rank computes from it, then all ranks: one finding, one culprit."""
    play = world().sees(3, Stage.INPUT, "args[0]", microbatch=1)
    play.sees(3, Stage.FORWARD, "token", microbatch=1).sees(3, Stage.LOSS, microbatch=1)
    play.sees(3, Stage.GRADIENT, WEIGHT, microbatch=1)
    finding = infected(play).finding("nonfinite-input")
    assert (finding.ranks, finding.step, finding.victims) == ([3], 11, [0, 1, 2])
    assert finding.where == {"microbatch": 1}
    assert finding.severity == "critical"
    assert "rank 3 got a batch with NaN in it (args[0]) in step 11" in finding.headline


def test_a_module_is_named_by_the_first_output_that_was_bad() -> None:
    """Later modules, the loss and the gradients follow from it."""
    play = world()
    play.sees(2, Stage.LOSS, microbatch=2, looked=(Stage.INPUT,))
    play.sees(2, Stage.FORWARD, "blocks.1.mlp", microbatch=2)
    play.sees(2, Stage.FORWARD, "blocks.2", microbatch=2)
    play.sees(2, Stage.GRADIENT, WEIGHT, microbatch=2)
    finding = infected(play).finding("nonfinite-forward")
    assert (finding.ranks, finding.step) == ([2], 11)
    assert finding.where == {"module": "blocks.1.mlp", "microbatch": 2}


def test_a_loss_that_is_nan_with_finite_gradients_is_only_that() -> None:
    """Nobody else is hit, and the sentence says that gradients are finite."""
    play = world().sees(
        1, Stage.LOSS, microbatch=1, looked=(Stage.INPUT, Stage.FORWARD, Stage.GRADIENT)
    )
    finding = play.done().finding("nonfinite-loss")
    assert (finding.ranks, finding.victims, finding.step) == ([1], [], 11)
    assert finding.where == {"microbatch": 1}
    assert any("finite on rank 1 in that step" in line and "gradient" in line
               for line in finding.evidence), finding.evidence  # fmt: skip


def test_a_gradient_that_is_nan_with_a_finite_loss_names_parameter_and_microbatch() -> None:
    """The reduced gradient on the others is a consequence."""
    play = world().sees(3, Stage.GRADIENT, WEIGHT, microbatch=2, looked=(Stage.INPUT, Stage.LOSS))
    finding = infected(play).finding("nonfinite-gradient")
    assert (finding.ranks, finding.step, finding.victims) == ([3], 11, [0, 1, 2])
    assert finding.where == {"parameter": WEIGHT, "microbatch": 2}
    assert "before any reduction" in finding.headline
    assert any("finite on rank 3 in that step: input, loss" in line for line in finding.evidence)


def test_a_cast_that_overflows_is_told_apart_from_the_gradient() -> None:
    """The gradient itself was finite."""
    play = world().sees(0, Stage.CAST, WEIGHT, value="inf", note="largest 1e+06")
    play.sees(EVERYBODY, Stage.REDUCED, WEIGHT, value="inf")
    finding = play.done({0: 1e6}).finding("nonfinite-cast")
    assert (finding.ranks, finding.where) == ([0], {"parameter": WEIGHT})
    assert "largest 1e+06" in " ".join(finding.evidence)


@pytest.mark.parametrize("trainer", ["ddp", "fsdp2"])
def test_a_reduction_that_overflows_has_no_culprit(trainer: str) -> None:
    """Every rank's own was finite; who holds the reduced shard is not accused."""
    play = world(trainer).sees([1, 2], Stage.REDUCED, WEIGHT, value="inf")
    play.sees(1, Stage.UPDATED, WEIGHT, note="so was its gradient")
    finding = play.done(dict.fromkeys(EVERYBODY, 3e38)).finding("nonfinite-reduction")
    assert (finding.ranks, finding.where) == ([], {"parameter": WEIGHT})
    assert "every rank's own was finite" in finding.headline


def test_a_reduction_is_not_called_one_while_a_rank_was_not_looked_at() -> None:
    """What is not known is said to be not known."""
    play = world().sees(EVERYBODY, Stage.REDUCED, WEIGHT)
    finding = play.done({1: None, 2: None}).finding("nonfinite-reduction")
    assert finding.ranks == []
    assert (
        "where from is not known: the own gradients of ranks 1 and 2 were not all looked at"
        in finding.headline
    )


def left_over(play: NumericWorld, rank: int, stage: Stage) -> NumericWorld:
    """All ranks have the bad number that came of a step in which ``rank`` left gradients out."""
    note = "so was its gradient" if stage == Stage.UPDATED else ""
    others = [other for other in play.ranks if other != rank]
    play.sees(others, stage, WEIGHT, looked=(Stage.LOSS, Stage.GRADIENT), note=note)
    return play.sees(rank, stage, WEIGHT, looked=(Stage.LOSS,), note=note)


@pytest.mark.parametrize("stage", [Stage.REDUCED, Stage.UPDATED])
@pytest.mark.parametrize("ranks", [2, 4, 9])
@pytest.mark.parametrize("takes_turns", [True, False])
def test_the_only_rank_that_was_not_looked_at_is_said_to_be_it(
    ranks: int, stage: Stage, takes_turns: bool
) -> None:
    """Where the others' own were finite, and the reduced gradient is not: no accusation, but all
    that is left, with why it was not looked at."""
    play = world(ranks=ranks)
    if takes_turns:
        play.hello(1, trainer="ddp", facts={"numerics_large_every": "8"})
    finding = left_over(play, 1, stage).done({1: None}).finding("nonfinite-reduction")
    assert (finding.ranks, finding.step) == ([], 11)
    others = "others' were" if ranks > 2 else "other's were"
    assert finding.headline == (
        f"the reduced gradient of {WEIGHT} is NaN in step 11; rank 1 is the only one whose own "
        f"gradients were not all looked at in that step, the {others} finite"
    )
    assert "rankscope numerics --rank 1" in finding.next
    told = "rank 1 reads its large gradients at every 8th step, and left some out in that one"
    assert (told in finding.evidence) == takes_turns


@pytest.mark.parametrize(
    "norms",
    [
        {1: None, 3: None},
        dict.fromkeys(EVERYBODY),
    ],
)
def test_of_several_that_were_not_looked_at_none_is_the_only_one(
    norms: dict[int, float | None],
) -> None:
    """They are all named as not looked at."""
    play = world().sees(EVERYBODY, Stage.REDUCED, WEIGHT, looked=(Stage.LOSS,))
    headline = play.done(norms).finding("nonfinite-reduction").headline
    assert "the only one" not in headline
    assert "where from is not known" in headline


def test_a_norm_of_what_was_read_does_not_clear_a_rank_that_left_gradients_out() -> None:
    """One that tells of an outlier among those that it read: not all of its own were looked at."""
    play = world().sees([0, 3], Stage.REDUCED, WEIGHT, looked=(Stage.GRADIENT,))
    play.sees([1, 2], Stage.REDUCED, WEIGHT, looked=(Stage.LOSS,))
    headline = play.done({1: None, 2: 30.0}).finding("nonfinite-reduction").headline
    assert "the only one" not in headline


def test_a_rank_by_itself_is_not_the_only_one() -> None:
    """There are no others to be finite."""
    play = world(ranks=1).sees(0, Stage.REDUCED, WEIGHT, looked=(Stage.LOSS,))
    headline = play.done({0: None}).finding("nonfinite-reduction").headline
    assert "the own gradients of rank 0 were not all looked at" in headline
    assert "the only one" not in headline


def test_a_parameter_that_was_bad_before_the_step_explains_its_ranks_forward() -> None:
    """DDP: one replica; the others get it with the reduction."""
    play = world().sees(1, Stage.LOSS, microbatch=1).sees(1, Stage.FORWARD, "up", microbatch=1)
    play.sees(1, Stage.PARAMETER, WEIGHT).sees(1, Stage.GRADIENT, WEIGHT, microbatch=1)
    finding = infected(play).finding("nonfinite-parameter")
    assert (finding.ranks, finding.step, finding.where) == ([1], 11, {"parameter": WEIGHT})


def test_where_large_gradients_take_turns_a_bad_parameter_may_come_from_one() -> None:
    """They were not read in the step before: it is said, and only then."""
    for norms, expected in ((dict.fromkeys(EVERYBODY), True), (None, False)):
        play = world().done(norms)
        for rank in EVERYBODY:
            play.sees(rank, Stage.LOSS, microbatch=1).sees(rank, Stage.PARAMETER, WEIGHT)
        finding = play.done(dict.fromkeys(EVERYBODY)).finding("nonfinite-parameter")
        assert any("take turns" in line for line in finding.evidence) == expected


def test_a_bad_shard_explains_the_forward_of_every_rank() -> None:
    """FSDP2: all ranks gather it and compute NaN; only its owner had it before the step."""
    play = world("fsdp2")
    for rank in (0, 2, 3, 1):
        play.sees(rank, Stage.FORWARD, "up", microbatch=1).sees(rank, Stage.LOSS, microbatch=1)
        play.sees(rank, Stage.GRADIENT, WEIGHT, microbatch=1)
    play.sees(1, Stage.PARAMETER, WEIGHT)
    finding = play.done(dict.fromkeys(EVERYBODY, float("nan"))).finding("nonfinite-parameter")
    assert (finding.ranks, finding.victims) == ([1], [0, 2, 3])


def test_the_optimizers_state_is_blamed_for_a_parameter_it_spoilt() -> None:
    """State and parameter bad after an update with finite gradients, at that step."""
    play = world().sees(2, Stage.OPTIMIZER, WEIGHT).sees(2, Stage.UPDATED, WEIGHT)
    play.done()
    play.sees(2, Stage.PARAMETER, WEIGHT).sees(2, Stage.FORWARD, "up", microbatch=1)
    play.sees(EVERYBODY, Stage.REDUCED, WEIGHT).done()
    finding = play.finding("nonfinite-optimizer")
    assert (finding.ranks, finding.step, finding.where) == ([2], 11, {"parameter": WEIGHT})


def test_state_and_parameter_bad_when_a_step_begins_mean_the_update_before() -> None:
    """A bad parameter reaches the state only by the next update, so the state was first."""
    play = world().sees(2, Stage.LOSS, microbatch=1).sees(2, Stage.FORWARD, "up", microbatch=1)
    play.sees(2, Stage.PARAMETER, WEIGHT).sees(2, Stage.OPTIMIZER, WEIGHT)
    finding = play.done().finding("nonfinite-optimizer")
    assert (finding.ranks, finding.step) == ([2], 10)


def test_an_update_that_spoils_its_parameter_with_finite_gradients_is_said_to() -> None:
    """The state was not seen to be bad: the update itself made it."""
    play = world().sees(0, Stage.UPDATED, WEIGHT, value="inf").done()
    finding = play.finding("nonfinite-optimizer")
    assert finding.ranks == [0]
    assert f"the update of step 11 made {WEIGHT} Inf on rank 0" in finding.headline


def test_several_ranks_at_once_are_all_named() -> None:
    """The same on two ranks in one step: neither is the victim of the other."""
    play = world().sees([1, 3], Stage.GRADIENT, WEIGHT, microbatch=1)
    finding = infected(play).finding("nonfinite-gradient")
    assert (finding.ranks, finding.victims) == ([1, 3], [0, 2])


def test_two_different_beginnings_in_one_step_are_two_findings() -> None:
    """A bad batch on one rank does not explain a bad gradient on another."""
    play = world().sees(1, Stage.INPUT, "args[0]", microbatch=1)
    play.sees(3, Stage.GRADIENT, WEIGHT, microbatch=1)
    found = {f.kind: f.ranks for f in infected(play).findings()}
    assert found == {"nonfinite-input": [1], "nonfinite-gradient": [3]}


def test_a_gradient_that_is_bad_one_microbatch_later_is_not_the_origin() -> None:
    """A loop that reduces after each microbatch adds to what the others had in theirs."""
    play = world().sees(2, Stage.GRADIENT, WEIGHT, microbatch=1)
    play.sees([0, 1, 3], Stage.GRADIENT, WEIGHT, microbatch=2)
    assert play.done().finding("nonfinite-gradient").ranks == [2]


@pytest.mark.parametrize("seed", range(10))
def test_the_order_in_which_ranks_are_heard_does_not_matter(seed: int) -> None:
    """Whoever's messages come first, the verdict is the same."""
    play = world()
    said = [
        (2, Stage.LOSS, "", 1),
        (2, Stage.FORWARD, "blocks.0.mlp", 1),
        (2, Stage.GRADIENT, WEIGHT, 1),
        *((rank, Stage.REDUCED, WEIGHT, 0) for rank in EVERYBODY),
        *((rank, Stage.UPDATED, WEIGHT, 0) for rank in EVERYBODY),
    ]
    random.Random(seed).shuffle(said)
    for rank, stage, name, microbatch in said:
        play.sees(rank, stage, name, microbatch=microbatch)
        play.tick()
    finding = play.done().finding("nonfinite-forward")
    assert (finding.ranks, finding.where["module"]) == ([2], "blocks.0.mlp")
    assert play.ever() == {"nonfinite-forward"}


def test_every_pair_of_stages_on_one_rank_begins_with_the_earlier_one() -> None:
    """Input, forward, loss, gradient, cast, in that order, within a microbatch."""
    own = (Stage.INPUT, Stage.FORWARD, Stage.LOSS, Stage.GRADIENT, Stage.CAST)
    for first, second in itertools.combinations(own, 2):
        play = world(ranks=2).sees(1, second, "x", microbatch=1).sees(1, first, "x", microbatch=1)
        assert play.done().findings()[0].kind == f"nonfinite-{first.name.lower()}"


def test_a_bad_batch_beside_a_bad_parameter_is_named_as_well() -> None:
    """What a rank computes may come from a shard it gathered; what it reads may not."""
    play = world("fsdp2").sees(1, Stage.PARAMETER, WEIGHT)
    play.sees(EVERYBODY, Stage.FORWARD, "up", microbatch=1)
    play.sees(2, Stage.INPUT, "args[0]", microbatch=1)
    found = {f.kind: f.ranks for f in play.done().findings()}
    assert found == {"nonfinite-parameter": [1], "nonfinite-input": [2]}
