"""Faults in which one rank's collectives are not those of the others."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.processes

IN = {
    "skipped-collective": "accumulate",
    "extra-collective": "once_more",
    "wrong-operation": "broadcast",
    "wrong-size": "many",
    "wrong-dtype": "in_float",
    "wrong-order": "gather_in",
}
"""Fault to the function the rank calls the wrong collective in."""

COUNTS = ["all_reduce", [], "torch.int64"]
"""The all-reduce of token counts that every step begins with."""
WRONG = {
    "wrong-operation": ["broadcast", [], "torch.int64"],
    "wrong-size": ["all_reduce", [1024], "torch.int64"],
    "wrong-dtype": ["all_reduce", [], "torch.float32"],
}


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("trainer", ["ddp", "fsdp2"])
def test_one_rank_does_another_operation_or_size_or_dtype(
    hurt: Callable[..., Any], trainer: str, fault: str
) -> None:
    """In the step's first collective; up to there the ranks' collectives are the same."""
    run = hurt(trainer, f"{fault}@1:3", until={1: f"called {IN[fault]}"})
    assert run.first_difference() == (COUNTS, WRONG[fault])
    assert run.truth[0]["where"]["collective"] == "all_reduce"
    assert run.truth[0]["where"]["source"].endswith(f"in {IN[fault]}")


@pytest.mark.parametrize("trainer", ["ddp", "fsdp2"])
def test_a_skipped_collective_leaves_the_rank_in_the_next(
    hurt: Callable[..., Any], trainer: str
) -> None:
    """Its peer waits in the one it left out."""
    next_one = {"ddp": "_engine_run_backward", "fsdp2": "all_gather_single"}[trainer]
    run = hurt(trainer, "skipped-collective@1:3", until={1: next_one, 0: "all_reduce"})
    assert [call for call in run.ranks[0]["calls"] if call == COUNTS] == [COUNTS] * 3
    assert [call for call in run.ranks[1]["calls"] if call == COUNTS] == [COUNTS] * 2
    source = run.truth[0]["where"]["source"].split(" in ")[0]
    assert run.place(1, "accumulate") in (source, "")  # gloo may abort it


@pytest.mark.parametrize("trainer", ["ddp", "fsdp2"])
def test_an_extra_collective_stands_between_the_others(
    hurt: Callable[..., Any], trainer: str
) -> None:
    """The rank does the counts twice where its peer goes on to what the log names."""
    run = hurt(trainer, "extra-collective@1:3", until={1: "once_more"})
    source = run.truth[0]["where"]["source"].split(" in ")[0]
    assert run.place(1, "once_more") in (source, "")  # gloo may abort it
    assert run.ranks[1]["calls"][-2:] == [COUNTS, COUNTS]


def test_the_order_in_one_group_is_turned_round(hurt: Callable[..., Any]) -> None:
    """One rank gathers where its peer reduces."""
    run = hurt("ddp", "wrong-order@1:3", until={1: "gather_in", 0: "reduce_in"})
    reduce, gather = run.first_difference()
    assert (reduce[:2], gather[:2]) == (["all_reduce", [256]], ["all_gather", [32]])


def test_two_groups_are_taken_in_opposite_order(hurt: Callable[..., Any]) -> None:
    """Each rank waits in the group that the other has not entered yet."""
    run = hurt("ddp", "group-order@1:3", until={1: "reduce_in", 0: "reduce_in"})
    assert run.pending(0) == run.pending(1) == "gloo:all_reduce"
    groups = [rank["collectives"][-1][2] for rank in run.ranks]
    assert groups[0] != groups[1]


@pytest.mark.parametrize("fault", ["early-exit", "data-exhausted"])
@pytest.mark.parametrize("trainer", ["ddp", "fsdp2"])
def test_a_rank_that_leaves_early_waits_where_all_leave(
    hurt: Callable[..., Any], trainer: str, fault: str
) -> None:
    """After its second step; its peer waits for it in the third."""
    run = hurt(trainer, f"{fault}@1:3", until={1: "leave", 0: "all_reduce"})
    assert len(run.ranks[1]["steps"]) == 2
    assert run.place(1, "leave") == run.truth[0]["where"]["source"].split(" in ")[0]
    assert (run.pending(0), run.pending(1)) == ("gloo:all_reduce", "gloo:barrier")
