"""What is worked out for several steps in one go is what it is step by step."""

import numpy as np
import pytest

from rankscope.hub.state.lateness import Lateness
from rankscope.hub.state.numerics.logs import encoded
from rankscope.hub.state.numerics.outliers import (
    may_have_outliers,
    outliers,
    past_of,
    shared_moves,
)
from rankscope.hub.state.paces import KEPT, Paces
from rankscope.protocol import messages as m


def recorded(paces: Paces, rank: int, step: int, times_s: list[float]) -> None:
    """A step of ``times_s`` of forward, backward and optimizer."""
    forward_s, backward_s, optimizer_s = times_s
    record = m.StepRecord(step, 0.0, sum(times_s), 0.0, forward_s, backward_s, optimizer_s, 0.0, 1)
    paces.record(record, rank)


def of_ranks(ranks: int) -> tuple[Paces, Lateness]:
    paces, lateness = Paces(), Lateness()
    paces.reserve(ranks)
    lateness.reserve(ranks)
    return paces, lateness


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("at_once", [2, 5, KEPT - 1])
@pytest.mark.parametrize("missing", [False, True])
def test_ranks_are_compared_alike_in_one_step_and_in_many(
    ranks: int, at_once: int, missing: bool
) -> None:
    """Also where a rank has not told of every step, and where one is not there any more."""
    random = np.random.default_rng(ranks * 100 + at_once)
    live = np.ones(ranks + 2, dtype=np.bool_)
    live[ranks:] = False
    one_by_one, in_one = of_ranks(ranks + 2), of_ranks(ranks + 2)
    last = 4 * at_once
    for step in range(1, last + 1):
        for rank in range(ranks):
            if missing and rank == step % 7:
                continue
            times_s = random.uniform(0.01, 0.1, 3).tolist()
            for paces, _ in (one_by_one, in_one):
                recorded(paces, rank, step, times_s)
        one_by_one[0].compare(live, step)
        one_by_one[1].take(one_by_one[0])
        if step % at_once == 0:
            in_one[0].compare(live, step)
            in_one[1].take(in_one[0])
    for field in ("excess_s", "usual_s", "compared"):
        np.testing.assert_array_equal(getattr(one_by_one[0], field), getattr(in_one[0], field))
    for field in ("late_s", "step", "taken"):
        np.testing.assert_array_equal(getattr(one_by_one[1], field), getattr(in_one[1], field))
    np.testing.assert_allclose(one_by_one[1].step_s, in_one[1].step_s, rtol=1e-6)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("past_steps", [0, 4, 40])
def test_a_step_that_is_passed_over_has_no_outlier(ranks: int, past_steps: int) -> None:
    """What is asked of many steps at once may call for a look too many, and for none too few."""
    random = np.random.default_rng(ranks * 100 + past_steps)
    steps, seen = 300, set()
    norms = np.exp(random.normal(0.0, 1.0, (ranks, past_steps + steps)))
    wild = random.random(norms.shape) < 0.03
    norms[wild] *= np.exp(random.uniform(2.0, 12.0, int(wild.sum())))
    norms[random.random(norms.shape) < 0.02] = np.nan
    norms[random.random(norms.shape) < 0.02] = 0.0
    codes = np.array([[encoded(norm) for norm in row] for row in norms.tolist()], dtype=np.int16)
    before = codes[:, :past_steps]
    past = past_of(before, shared_moves(before))
    for among in (np.ones(ranks, dtype=np.bool_), np.arange(ranks) != ranks - 1):
        now = codes[:, past_steps:]
        may = may_have_outliers(now, past, among)
        for step in range(steps):
            found = bool(outliers(now[:, step], past, among))
            assert bool(may[step]) >= found
            seen.add((bool(may[step]), found))
    if past_steps == 40:
        assert (False, False) in seen, "some are passed over"
    if ranks > 1:
        assert (True, True) in seen, "some are outliers"
