"""A gradient that is finite and far from its own past and from its peers."""

import math

import numpy as np
import pytest

from rankscope.hub.state.numerics.logs import decoded, encoded
from rankscope.protocol import messages as m
from rankscope.protocol.messages import Stage
from support.numericworld import NumericWorld

WEIGHT = "blocks.1.mlp.up.weight"


def healthy(ranks: int, steps: int, seed: int, *, noise: float = 0.5) -> np.ndarray:
    """Norms as small batches give them: levels that differ by ten, steps that jump for all, noise.

    Shape (steps, ranks); log-normal, warm-up included.
    """
    random = np.random.default_rng(seed)
    level = random.uniform(0.0, math.log(10.0), ranks)
    shared = np.cumsum(random.normal(0.0, 0.3, steps)) * 0.3 + random.normal(0.0, 0.7, steps)
    shared += 4.0 * np.exp(-np.arange(steps) / 20.0)
    own = random.normal(0.0, noise, (steps, ranks))
    return np.exp(level + shared[:, None] + own)


def played(norms: np.ndarray) -> NumericWorld:
    """Every step is judged, and all that was found is looked at in the end."""
    world = NumericWorld(norms.shape[1])
    for step in norms:
        world.done(dict(enumerate(step.tolist())), tick=False)
        world.state.tick(world.now_s)
        if world.state.numerics.outliers:
            break
    world.tick()
    return world


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("seed", range(3))
def test_healthy_norms_are_never_called_outliers(ranks: int, seed: int) -> None:
    """Ranks a factor of ten apart, common jumps by as much, noise, warm-up: 300 steps."""
    assert played(healthy(ranks, 300, seed)).ever() == set()


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("at", [8, 12, 40])
def test_ten_thousand_times_is_told_at_the_step_it_happens(ranks: int, at: int) -> None:
    """Whatever the ranks' levels are; the rank, the step and by how much."""
    norms = healthy(ranks, at + 2, seed=at)
    norms[at - 1, ranks - 1] *= 1e4
    finding = played(norms[:at]).finding("gradient-outlier")
    assert (finding.ranks, finding.step) == ([ranks - 1], at)
    assert finding.severity == "warning"
    assert "times its usual" in finding.headline


def test_in_the_first_steps_a_rank_is_compared_with_its_peers_only() -> None:
    """There is no past yet."""
    world = NumericWorld(4).clean(2).done({2: 1.2e4})
    assert world.finding("gradient-outlier").ranks == [2]


def test_a_jump_of_all_ranks_is_none() -> None:
    """A hard batch, or a learning rate: all go up together."""
    world = NumericWorld(4).clean(12).done({0: 300.0, 1: 500.0, 2: 250.0, 3: 700.0}).clean(3)
    assert world.ever() == set()


def test_a_rank_without_labels_has_a_norm_of_0_and_is_none() -> None:
    """Nor is the first norm above 0 after it."""
    world = NumericWorld(4).clean(12)
    for step in range(40):
        world.done({1: 0.0 if step % 4 else 1.5})
    assert world.ever() == set()


def test_spikes_that_a_rank_had_before_are_none() -> None:
    """Each rank is compared with the largest of its own past, too."""
    rng = np.random.default_rng(0)
    norms = healthy(4, 80, seed=5)
    norms[:, 2] *= np.where(rng.random(80) < 0.2, 15.0, 1.0)
    assert played(norms).ever() == set()


def test_two_ranks_of_four_are_both_named() -> None:
    """One finding for the step, with the figures of each."""
    world = NumericWorld(4).clean(12).done({1: 9e3, 3: 2e4})
    finding = world.finding("gradient-outlier")
    assert finding.ranks == [1, 3]
    assert [line[:6] for line in finding.evidence[:2]] == ["rank 1", "rank 3"]


def tell(world: NumericWorld, rank: int, step: int, norms: dict[str, float]) -> None:
    told = tuple(m.ParameterNorm(name, norm) for name, norm in norms.items())
    world.from_rank(rank, m.ParameterNorms, step=step, norms=told)


def test_the_parameter_is_the_one_that_grew() -> None:
    """Not the one that is always the largest."""
    world = NumericWorld(2).clean(12).done({1: 900.0})
    tell(world, 1, 12, {"head.weight": 1.1, WEIGHT: 0.09})
    tell(world, 1, 13, {"head.weight": 1.2, WEIGHT: 900.0})
    finding = world.finding("gradient-outlier")
    assert finding.where == {"parameter": WEIGHT}
    assert f"most of it in {WEIGHT}" in finding.headline


def test_without_another_step_it_is_the_one_that_makes_up_most_of_it() -> None:
    """And none where none does."""
    world = NumericWorld(2).clean(12).done({1: 900.0})
    tell(world, 1, 13, {"a": 10.0, WEIGHT: 899.0})
    assert world.finding("gradient-outlier").where == {"parameter": WEIGHT}
    world = NumericWorld(2).clean(12).done({1: 900.0})
    tell(world, 1, 13, {"a": 500.0, "b": 500.0, "c": 500.0})
    assert world.finding("gradient-outlier").where == {}


def test_the_hub_asks_for_the_parameters_while_they_are_at_hand() -> None:
    """The next step overwrites them."""
    world = NumericWorld(2).clean(12)
    world.replies()
    world.done({1: 2e4})
    assert (b"rank 1", m.Inquire(1, ("parameter_norms",))) in world.replies()


def test_a_spoilt_run_has_no_outliers() -> None:
    """What is NaN, and what it does to the others' norms, is not judged as a size."""
    world = NumericWorld(4).clean(12).sees(1, Stage.GRADIENT, WEIGHT, microbatch=1)
    world.done({1: math.nan, 2: 1e5}).clean(3, norms={0: 1e6})
    assert world.kinds() == ["nonfinite-gradient"]


def test_an_outlier_that_passes_closes_after_a_while() -> None:
    """It stays in the log."""
    world = NumericWorld(2).clean(12).done({1: 2e4}).clean(90)
    assert world.kinds() == []
    assert world.ever() == {"gradient-outlier"}


@pytest.mark.parametrize("norm", [0.0, 1e-22, 1e-3, 1.0, 7.3, 1e19, 3e38, math.inf])
def test_a_kept_norm_is_exact_to_a_percent(norm: float) -> None:
    """Sixteen bits a step are enough for the eye and for the statistics."""
    kept = decoded(encoded(norm))
    assert kept is not None
    assert kept == norm or abs(kept / norm - 1) < 0.01


def test_a_norm_that_is_nan_or_negative_is_kept_as_what_it_is() -> None:
    """NaN stays NaN; a rank that lies about a size is read as 0."""
    kept = decoded(encoded(math.nan))
    assert kept is not None
    assert math.isnan(kept)
    assert decoded(encoded(-3.0)) == 0.0
    assert math.isinf(decoded(encoded(1e308)) or 0.0) or (decoded(encoded(1e308)) or 0.0) > 1e300
