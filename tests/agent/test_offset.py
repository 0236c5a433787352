"""The offset to the hub's clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.agent.clock.offset import Exchange, estimate


def test_without_an_answer_there_is_no_offset() -> None:
    """No exchange, no estimate."""
    assert estimate([]) is None


def test_the_smallest_round_trip_is_believed() -> None:
    """Queueing only lengthens a round trip, so the shortest is the truest."""
    slow, quick = Exchange(10.0, 1000.4, 10.5), Exchange(20.0, 1010.001, 20.002)
    best = estimate([slow, quick, slow])
    assert best is not None
    assert best.offset_s == pytest.approx(990.0)
    assert best.error_s == pytest.approx(0.001)


def test_an_answer_before_its_question_is_no_answer() -> None:
    """A clock that jumped back must not give a negative error."""
    assert estimate([Exchange(10.0, 1000.0, 9.0)]) is None


@given(
    st.floats(-1e6, 1e6),
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 2), st.floats(0, 2)), min_size=1),
)
def test_the_error_bounds_the_offset(
    true_s: float, trips: list[tuple[float, float, float]]
) -> None:
    """However the two ways differ, the truth lies within the stated error."""
    exchanges = [Exchange(t, t + there + true_s, t + there + back) for t, there, back in trips]
    best = estimate(exchanges)
    assert best is not None
    assert abs(best.offset_s - true_s) <= best.error_s + 1e-6
