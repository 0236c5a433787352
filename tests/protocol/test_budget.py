"""The arithmetic of memory and volume, against figures worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.protocol import budget

GB = 1e9
Hand = tuple[float, int, str, float]


@pytest.mark.parametrize(
    ("parameters", "ranks", "scheme", "gigabytes"),
    [
        (7e9, 8, "single", 112.0),
        (7e9, 8, "ddp", 112.0),
        (7e9, 8, "zero1", 38.5),
        (7e9, 8, "zero2", 26.25),
        (7e9, 8, "fsdp", 14.0),
        (7e9, 4, "zero1", 49.0),
        (7e9, 4, "zero2", 38.5),
        (7e9, 4, "fsdp", 28.0),
        (50e9, 8, "fsdp", 100.0),
    ],
)
def test_a_state_takes_what_it_takes_by_hand(
    parameters: float, ranks: int, scheme: str, gigabytes: float
) -> None:
    """2 + 2 + 12 bytes a parameter, spread as far as the scheme spreads each."""
    assert budget.state_bytes(scheme, parameters, ranks) == pytest.approx(gigabytes * GB)


@pytest.mark.parametrize(
    ("scheme", "billions"), [("ddp", 2.5), ("zero1", 7.27), ("zero2", 10.67), ("fsdp", 20.0)]
)
def test_the_largest_model_on_eight_devices_of_40_gb(scheme: str, billions: float) -> None:
    """With nothing but the state on them."""
    assert budget.largest_parameters(scheme, 8, 40 * GB) / 1e9 == pytest.approx(billions, abs=0.005)


def test_the_volumes_of_14_gb_on_8_ranks() -> None:
    """24.5 GB for an all-reduce, 36.75 GB for two gathers and a reduce-scatter."""
    assert budget.all_reduce_bytes(14 * GB, 8) == 24.5 * GB
    assert budget.sent_bytes("ddp", 7e9, 8) == 24.5 * GB
    assert budget.sent_bytes("fsdp", 7e9, 8) == 36.75 * GB


def test_a_hybrid_is_a_shard_within_its_group_and_alike_between_groups() -> None:
    """Its state is that of the group's size; the groups reduce shards between them."""
    assert budget.state_bytes("hybrid", 7e9, 16, shard=8) == 14 * GB
    assert budget.state_bytes("hybrid", 7e9, 8, shard=8) == budget.state_bytes("fsdp", 7e9, 8)
    assert budget.sent_bytes("hybrid", 7e9, 8, shard=8) == budget.sent_bytes("fsdp", 7e9, 8)
    between = budget.all_reduce_bytes(14 * GB / 8, 2)
    assert budget.sent_bytes("hybrid", 7e9, 16, shard=8) == 36.75 * GB + between


def test_what_a_step_needs_on_top_counts_where_it_is() -> None:
    """Activations everywhere, the gathered group only where parameters are sharded."""
    extra = budget.Extra(activation=5 * GB, gather=3 * GB, other=1 * GB)
    found = budget.table(7e9, 8, extra=extra, device_bytes=40 * GB)
    assert found["peak_bytes"]["ddp"] == 118 * GB
    assert found["peak_bytes"]["fsdp"] == 23 * GB
    assert found["largest_params"]["fsdp"] == pytest.approx((40 - 9) * GB / 2)
    assert found["largest_params"]["ddp"] == pytest.approx((40 - 6) * GB / 16)


@given(
    st.floats(1, 1e13),
    st.integers(1, 4096),
    st.sampled_from(budget.SCHEMES),
    st.floats(1e6, 1e13),
)
def test_the_largest_model_is_one_that_fits_and_the_next_is_not(
    parameters: float, ranks: int, scheme: str, device_bytes: float
) -> None:
    """The bound and the state are each other's inverse, to one parameter."""
    largest = budget.largest_parameters(scheme, ranks, device_bytes)
    assert budget.state_bytes(scheme, largest, ranks) <= device_bytes * (1 + 1e-9)
    assert budget.state_bytes(scheme, largest + 1, ranks) > device_bytes * (1 - 1e-9)
    one = budget.state_bytes(scheme, parameters, 1)
    assert one == pytest.approx(budget.state_bytes("single", parameters, 1))
    assert budget.sent_bytes(scheme, parameters, 1) == 0


@pytest.mark.parametrize("shard", [None, 0, -1, 3])
def test_groups_that_do_not_divide_the_ranks_are_refused(shard: int | None) -> None:
    """In words."""
    with pytest.raises(ValueError, match="do not divide 8"):
        budget.state_bytes("hybrid", 1e9, 8, shard=shard)


def test_a_scheme_there_is_none_of_is_refused() -> None:
    """With those there are."""
    with pytest.raises(ValueError, match="single, ddp, zero1, zero2, fsdp, hybrid"):
        budget.state_bytes("zero4", 1e9, 8)
