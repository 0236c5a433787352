"""Each rank's own gradients, on real ranks: what is said of them, and that nothing is changed.

One launch for many ways of training (see ``programs/gradients.py``); each is run without and with
the probes, with data and seeds that are the same.
"""

import functools
import math
import subprocess
from typing import Any

import pytest

from support import training

TIMEOUT_S = 240.0

pytestmark = pytest.mark.processes

DDP = (
    *("ddp", "ddp view", "ddp view kept", "ddp kept", "ddp small buckets", "ddp accumulates"),
    *("ddp view accumulates", "ddp view kept accumulates", "ddp bf16", "ddp static"),
    *("ddp static view", "ddp unused", "ddp clip", "ddp fp16 hook", "ddp stock hook", "ddp join"),
    *("ddp inside", "ddp compiled", "ddp checkpointed"),
    *("ddp goes on", "ddp goes on kept", "ddp goes on static", "ddp goes on clip"),
    *("ddp goes on freezing", "ddp goes on in part", "ddp goes on to a hook"),
    *("ddp goes on ignoring", "ddp goes on thawed", "ddp goes on wrapped anew"),
    *("ddp wrapped anew view", "ddp goes on wrapped anew static"),
)
DDP_BAD = (
    *("ddp nan", "ddp inf", "ddp cast", "ddp large", "ddp sum", "ddp sum clip"),
    *("ddp goes on nan", "ddp goes on inf", "ddp goes on ignoring nan"),
)
FSDP2 = (
    *("fsdp2", "fsdp2 accumulates", "fsdp2 kept", "fsdp2 bf16", "fsdp2 bf16 accumulates"),
    *("fsdp2 fp16 reduce", "fsdp2 unused", "fsdp2 hsdp", "fsdp2 clip", "fsdp2 compiled"),
)
FSDP2_BAD = (*("fsdp2 nan", "fsdp2 bf16 nan", "fsdp2 cast", "fsdp2 cast accumulates", "fsdp2 sum"),)
FSDP1 = ("fsdp1", "fsdp1 orig", "fsdp1 accumulates", "fsdp1 bf16", "fsdp1 nan")
THREE = ("ddp", "ddp view kept accumulates", "ddp bf16", "ddp clip", "fsdp2", "fsdp2 accumulates")
FOUR = ("ddp view", "ddp bf16", "fsdp2", "fsdp2 two replicas", "fsdp2 accumulates")

Found = list[dict[str, Any]]
"""What each rank says of one way."""


@functools.cache
def launched(ranks: int, *ways: str) -> dict[str, Found]:
    process = training.start("gradients.py", {}, ranks, ways=ways)
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.terminate()  # the launcher ends its ranks
        out, err = process.communicate()
        raise AssertionError(f"the program hung; it printed:\n{out}\n{err}") from None
    lines = training.Ended(process.returncode, out, err).lines
    assert len(lines) == ranks, err
    return {way: [line["ways"][way] for line in lines] for way in ways}


def of(way: str) -> Found:
    group = next(one for one in (DDP + DDP_BAD, FSDP2 + FSDP2_BAD, FSDP1) if way in one)
    return launched(2, *group)[way]


def signs(found: Found, rank: int, step: int, stage: str) -> list[list[Any]]:
    """[microbatch, name, value, count, note] of the signs of a stage in a step."""
    return [
        [sign[2], sign[3], sign[4], sign[5], sign[7]]
        for sign in found[rank]["signs"]
        if sign[0] == stage and sign[1] == step
    ]


def norms(found: Found, rank: int) -> list[float]:
    return [float(norm) for norm in found[rank]["norms"]]


@pytest.mark.parametrize("way", DDP + DDP_BAD + FSDP2 + FSDP2_BAD + FSDP1)
def test_two_ranks_train_the_same_to_the_bit(way: str) -> None:
    """With all probes and without any; no probe fails, and each step has its norm."""
    for one in of(way):
        assert one["equal"]
        assert one["faults"] == []
        assert "None" not in one["norms"]
        assert "numerics_not_covered" not in one["facts"]


@pytest.mark.parametrize("way", ["ddp accumulates", "fsdp1 accumulates", "fsdp2 accumulates"])
def test_each_step_counts_once(way: str) -> None:
    """Wherever gradients are between microbatches, in a loop that does not say where steps end."""
    assert [len(one["norms"]) for one in of(way)] == [10, 10]


@pytest.mark.parametrize(
    ("way", "parameters"),
    [
        *((way, 10) for way in DDP + DDP_BAD if way.startswith("ddp goes on")),
        ("ddp accumulates", 10),
        ("ddp view", 0),
        ("ddp unused", 0),
    ],
)
def test_one_hook_serves_all_parameters_where_gradients_stay(way: str, parameters: int) -> None:
    """Once that was seen, and until something is not as it was."""
    breaks = (
        *("ddp goes on freezing", "ddp goes on in part"),
        *("ddp goes on wrapped anew", "ddp goes on wrapped anew static"),
    )
    for one in of(way):
        assert one["by_one_hook"] == (0 if way in breaks else parameters)


def test_what_ddp_does_not_wait_for_mixes_no_ranks() -> None:
    """The rank whose gradient is bad is accused, and no other, whatever comes last."""
    found = of("ddp goes on ignoring nan")
    assert not signs(found, 0, 9, "GRADIENT")
    assert [sign[1] for sign in signs(found, 1, 9, "GRADIENT")] == ["blocks.1.weight"]


@pytest.mark.parametrize("way", THREE)
def test_three_ranks_train_the_same_to_the_bit(way: str) -> None:
    """Where a division by the number of ranks leaves its mark on the last bit."""
    assert all(one["equal"] and one["faults"] == [] for one in launched(3, *THREE)[way])


@pytest.mark.parametrize("way", FOUR)
def test_four_ranks_train_the_same_to_the_bit(way: str) -> None:
    """Copies of shards among them."""
    assert all(one["equal"] and one["faults"] == [] for one in launched(4, *FOUR)[way])


@pytest.mark.parametrize("way", [way for way in DDP + DDP_BAD if way not in ("ddp inside",)])
def test_norms_are_of_the_rank_s_own_gradients(way: str) -> None:
    """As an onlooker computes them of copies taken before DDP has touched them."""
    for rank, one in enumerate(of(way)):
        expected = [float(norm) for norm in one["expected"]]
        assert norms(of(way), rank) == pytest.approx(expected, rel=1e-4, nan_ok=True)


@pytest.mark.parametrize(
    ("way", "as_in"),
    [
        ("fsdp2", "ddp"),
        ("fsdp2 hsdp", "ddp"),
        ("fsdp2 kept", "ddp"),
        ("fsdp2 accumulates", "ddp accumulates"),
        ("fsdp2 unused", "ddp unused"),
        ("fsdp1", "ddp"),
        ("fsdp1 orig", "ddp"),
        ("fsdp1 accumulates", "ddp accumulates"),
    ],
)
def test_sharded_models_have_the_norms_of_replicated_ones(way: str, as_in: str) -> None:
    """What a rank computes itself does not depend on how parameters are kept."""
    for rank in (0, 1):
        assert norms(of(way), rank) == pytest.approx(norms(of(as_in), rank), rel=1e-4)


@pytest.mark.parametrize(
    ("way", "microbatch"), [("ddp nan", 2), ("fsdp2 nan", 2), ("fsdp2 bf16 nan", 3)]
)
def test_a_nan_is_named_with_parameter_and_microbatch_on_its_rank(
    way: str, microbatch: int
) -> None:
    """And on no other: theirs are finite until the next step."""
    found = of(way)
    assert signs(found, 1, 2, "GRADIENT") == [[microbatch, "blocks.1.weight", "nan", 1, ""]]
    assert signs(found, 0, 2, "GRADIENT") == []
    assert math.isnan(norms(found, 1)[1])
    assert math.isfinite(norms(found, 0)[1])


def test_where_one_hook_serves_all_a_nan_is_named_the_same() -> None:
    """With its parameter, rank, step and microbatch."""
    found = of("ddp goes on nan")
    assert signs(found, 1, 8, "GRADIENT") == [[2, "blocks.1.weight", "nan", 1, ""]]
    assert signs(found, 0, 8, "GRADIENT") == []
    assert signs(of("ddp goes on inf"), 0, 9, "GRADIENT") == [[1, "blocks.0.bias", "inf", 1, ""]]


def test_a_flat_gradient_is_named_by_its_parameters() -> None:
    """FSDP1: the NaN that came into the second block, and what lies before it in the model."""
    names = [sign[1] for sign in signs(of("fsdp1 nan"), 1, 2, "GRADIENT")]
    assert names[:2] == ["blocks.1.weight", "blocks.1.bias"]
    assert not any(name.startswith("head") for name in names)
    assert {sign[0] for sign in signs(of("fsdp1 nan"), 1, 2, "GRADIENT")} == {2}


def test_minus_infinity_is_told_as_such() -> None:
    """The worst of what is there, in the words of the wire."""
    found = of("ddp inf")
    assert signs(found, 0, 3, "GRADIENT") == [[1, "blocks.1.weight", "-inf", 1, ""]]


@pytest.mark.parametrize("way", ["ddp cast", "fsdp2 cast"])
def test_what_does_not_survive_the_cast_is_named_before_it(way: str) -> None:
    """Finite in fp32, and beyond the end of the type in which it is reduced."""
    found = of(way)
    note = "largest 1e+06, float16 ends at 65504"
    assert signs(found, 1, 2, "CAST") == [[1, "blocks.1.weight", "inf", 0, note]]
    assert signs(found, 1, 2, "GRADIENT") == signs(found, 0, 2, "CAST") == []
    assert norms(found, 1)[1] == pytest.approx(1e6, rel=1e-3)


def test_a_cast_between_microbatches_has_its_microbatch() -> None:
    """FSDP2 casts what it keeps of a microbatch that is not reduced."""
    found = of("fsdp2 cast accumulates")
    assert [sign[:3] for sign in signs(found, 1, 2, "CAST")] == [[2, "blocks.1.weight", "inf"]]
    assert signs(found, 1, 2, "GRADIENT") == []
    assert math.isfinite(norms(found, 1)[1])


@pytest.mark.parametrize("way", ["ddp sum", "ddp sum clip", "fsdp2 sum"])
def test_an_overflow_of_the_sum_is_nobody_s_gradient(way: str) -> None:
    """Each rank's own is finite, with squares beyond fp32; the sum is not, and is named."""
    found = of(way)
    reduced = [signs(found, rank, 2, "REDUCED") for rank in (0, 1)]
    assert [sign[:4] for sign in reduced[0]] == [[0, "blocks.1.weight", "inf", 1]]
    assert [signs(found, rank, 2, "GRADIENT") for rank in (0, 1)] == [[], []]
    assert norms(found, 1)[1] == pytest.approx(3e38, rel=1e-3)


def test_large_numbers_are_no_sign() -> None:
    """The squares of 1e30 overflow, it does not."""
    found = of("ddp large")
    assert [sign for rank in (0, 1) for sign in found[rank]["signs"]] == []
    assert norms(found, 1)[1] == pytest.approx(1e30, rel=1e-3)


def test_other_ranks_see_what_was_reduced_and_nothing_of_their_own() -> None:
    """The rank whose gradient was finite says so: its norm is finite in that very step."""
    found = of("ddp inf")
    assert signs(found, 1, 3, "REDUCED")
    assert signs(found, 1, 3, "GRADIENT") == []
    assert math.isfinite(norms(found, 1)[2])
