"""The view of numerics: ranks over time, signs in the verdict's order, parameters on demand."""

import math

import pytest

from rankscope.hub.state.numerics.episodes import MAX_OF_A_RANK
from rankscope.hub.views.numerics import MAX_ROWS, MAX_SIGNS
from rankscope.protocol import limits
from rankscope.protocol import messages as m
from rankscope.protocol.messages import Stage
from support.numericworld import NumericWorld

WEIGHT = "blocks.1.mlp.up.weight"


def test_every_rank_has_its_norms_for_the_views_steps() -> None:
    """Oldest first, with what is not known left open."""
    world = NumericWorld(2).clean(3).done({1: None}).done({1: math.inf})
    view = world.view("numerics")
    assert view.steps == [1, 2, 3, 4, 5]
    assert [row.rank for row in view.ranks] == [0, 1]
    norms = view.ranks[1].norms
    assert norms[3] is None
    assert norms[4] == math.inf
    assert norms[0] == pytest.approx(1.1 * math.exp(0.2 * math.sin(2.3)), rel=0.01)
    assert (view.ranks[1].step, view.ranks[1].local_norm) == (5, math.inf)


def test_ranks_at_different_steps_stand_in_their_own_columns() -> None:
    """A rank that is behind has nothing yet where another one has."""
    world = NumericWorld(2).clean(3).done(ranks=[0])
    rows = world.view("numerics").ranks
    assert rows[0].norms[3] is not None
    assert rows[1].norms[3] is None


def test_skips_scale_signs_and_what_is_not_covered_are_told() -> None:
    """One row a rank holds them."""
    world = NumericWorld(2)
    facts = {"numerics_not_covered": "sparse gradients: embedding.weight; float8: head.weight"}
    world.hello(0, facts=facts)
    world.clean(2, scale=1024.0).done(updated={0: False, 1: False}, scale=512.0)
    world.sees(1, Stage.LOSS, microbatch=1).done(scale=512.0)
    first, second = world.view("numerics").ranks
    assert first.not_covered == ["sparse gradients: embedding.weight", "float8: head.weight"]
    assert (first.skipped, first.loss_scale, first.signs) == (1, 512.0, 0)
    assert (second.signs, second.not_covered) == (1, [])


@pytest.mark.parametrize(
    ("told", "every"), [("8", 8), ("2", 2), ("", 1), ("0", 1), ("-4", 1), ("x", 1), ("9" * 40, 1)]
)
def test_how_often_large_gradients_are_read_is_told(told: str, every: int) -> None:
    """At every step where the rank says nothing else, or nothing that can be."""
    world = NumericWorld(2)
    world.hello(0, facts={"numerics_large_every": told} if told else {})
    first, second = world.clean(2).view("numerics").ranks
    assert (first.large_every, second.large_every) == (every, 1)


def test_signs_stand_in_the_order_of_the_verdict() -> None:
    """By step, microbatch and stage; what the reduction carried comes last."""
    world = NumericWorld(2).clean(2)
    world.sees([0, 1], Stage.REDUCED, WEIGHT).sees(1, Stage.GRADIENT, WEIGHT, microbatch=2)
    world.sees(1, Stage.FORWARD, "head", microbatch=2).done()
    shown = [(row.rank, row.stage) for row in world.view("numerics").signs]
    assert shown == [(1, "forward"), (1, "gradient"), (0, "reduced"), (1, "reduced")]


def test_findings_are_those_of_this_field() -> None:
    """A dead rank is told elsewhere."""
    world = NumericWorld(2).clean(12).done({1: 1e5})
    world.kill(0)
    world.tick()
    assert [finding.kind for finding in world.view("numerics").findings] == ["gradient-outlier"]


def test_with_a_rank_its_parameters_are_asked_for_and_told() -> None:
    """Those that are not finite first, then the largest gradients."""
    world = NumericWorld(2).clean(2)
    world.replies()
    assert world.view("numerics", rank=1).parameters == []
    world.tick()
    assert (b"rank 1", m.Inquire(1, ("parameter_norms",))) in world.replies()
    norms = (
        m.ParameterNorm("a", 0.1),
        m.ParameterNorm("b", 3.0),
        m.ParameterNorm("c", math.nan, "nan"),
    )
    world.from_rank(1, m.ParameterNorms, step=2, norms=norms)
    view = world.view("numerics", rank=1)
    assert [row.name for row in view.parameters] == ["c", "b", "a"]
    assert view.parameters_step == 2
    assert world.view("numerics", rank=0).parameters == []


def test_the_parameter_to_blame_stands_before_those_that_it_spoilt() -> None:
    """Also when all of them are not finite by now, and however many there are."""
    world = NumericWorld(2).clean(2)
    world.sees(1, Stage.GRADIENT, "p3", microbatch=1).done()
    world.tick()
    (found,) = world.view("numerics").findings
    assert (found.ranks, found.where["parameter"]) == ([1], "p3")
    norms = tuple(m.ParameterNorm(f"p{at}", math.nan, "nan") for at in range(12))
    world.from_rank(1, m.ParameterNorms, step=3, norms=norms)
    names = [row.name for row in world.view("numerics", rank=1).parameters]
    assert names == ["p3", *(f"p{at}" for at in range(12) if at != 3)]


def test_a_rank_that_is_not_there_is_an_error_in_words() -> None:
    """As with every view of one rank."""
    reply = NumericWorld(2).clean(1).ask("numerics", 0, rank=7)
    assert reply.error == "there is no rank 7; this run has 2 ranks"


def test_of_a_large_world_the_ranks_in_trouble_are_told() -> None:
    """A screen can show so many; who is to blame, asked for, or far off is among them."""
    world = NumericWorld(600, per_node=100)
    world.clean(7, tick=False)
    world.done({501: 1e6}, tick=False).tick()
    view = world.view("numerics", rank=430)
    assert len(view.ranks) == MAX_ROWS
    assert view.left_out == 600 - MAX_ROWS
    assert {430, 501} <= {row.rank for row in view.ranks}
    assert next(row for row in view.ranks if row.rank == 501).distance > 6


def test_a_rank_that_floods_the_hub_with_signs_is_given_a_bounded_place() -> None:
    """Long names, many stages, many steps: memory, snapshot and view stay small."""
    from rankscope.hub import snapshot

    world = NumericWorld(2).clean(2)
    before = len(snapshot.dump(world.state))
    for step in range(3, 300):
        signs = tuple(
            m.Sign(stage, step, at, "x" * 1000, "nan", 1, 0, "y" * 300)
            for at in range(5)
            for stage in Stage
        )
        world.from_rank(1, m.Signs, step=step, signs=signs)
    world.tick()
    assert len(snapshot.dump(world.state)) - before < 4 * MAX_OF_A_RANK * 600
    reply = world.ask("numerics")
    assert len(reply.body) < limits.MAX_INBOUND_FRAME_BYTES
    assert len(world.view("numerics").signs) <= MAX_SIGNS


def test_a_step_far_ahead_hides_nothing_that_comes_after() -> None:
    """A rank that lies about its step is one liar, and the others are judged all the same."""
    world = NumericWorld(3).clean(2)
    world.from_rank(2, m.Signs, step=10**12, signs=(m.Sign(Stage.GRADIENT, 10**12, 1, "x", "nan"),))
    world.clean(1).sees(1, Stage.GRADIENT, WEIGHT, microbatch=1).done()
    assert [f.ranks for f in world.findings() if f.kind == "nonfinite-gradient"] == [[1]]
