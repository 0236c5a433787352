"""Faults in which a rank stays where it is, seen from outside by its stack and its peer's wait."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.processes

WAITS = {
    "gil-held": "wait_in_c",
    "endless-loop": "loop_for_ever",
    "lock": "take_twice",
    "blocked-read": "read_nothing",
    "loader-stuck": "wait_for_data",
    "blocked-exit": "join_for_ever",
}
PHASES = {
    "data": "collated",
    "forward": "_on_forward",
    "backward": "_engine_run_backward",
    "optimizer": "wrapper",
}
"""Phase to a function on the stack of a rank that is in it."""


def seen_at(run: Any, function: str) -> bool:
    """Whether the stuck rank is in ``function`` at the line the log says, or at one of them."""
    file, _, named = run.truth[0]["where"]["source"].partition(" in ")
    name, _, lines = file.partition(":")
    first, _, last = lines.partition("-")
    places = {f"{name}:{line}" for line in range(int(first), int(last or first) + 1)}
    return named == function and run.place(1, function) in places


@pytest.mark.parametrize("fault", WAITS)
def test_the_rank_is_at_the_line_the_log_says(hurt: Callable[..., Any], fault: str) -> None:
    """And its peer finishes no step after; nor does the log say that the step was over."""
    run = hurt("ddp", f"{fault}@1:3", until={1: WAITS[fault]})
    assert run.ended == []
    assert seen_at(run, WAITS[fault])
    assert [rank["code"] for rank in run.ranks] == [None, None]
    assert len(run.ranks[0]["steps"]) == len(run.ranks[1]["steps"]) == 2


def test_only_a_held_gil_silences_all_threads(hurt: Callable[..., Any]) -> None:
    """A rank that waits for a lock has other threads that go on."""
    held = hurt("ddp", "gil-held@1:3", until={1: "wait_in_c"})
    locked = hurt("ddp", "lock@1:3", until={1: "take_twice"})
    assert [rank["silent"] for rank in held.ranks] == [False, True]
    assert [rank["silent"] for rank in locked.ranks] == [False, False]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("trainer", ["ddp", "fsdp2"])
def test_it_hangs_in_the_phase_it_is_told_to(
    hurt: Callable[..., Any], trainer: str, phase: str
) -> None:
    """And the peer waits in the collective that the log names."""
    waits = {
        ("ddp", "forward"): "_engine_run_backward",
        ("ddp", "backward"): "_engine_run_backward",
    }
    gathers = {"forward": "all_gather_single", "backward": "reduce_scatter_single"}
    peer = waits.get((trainer, phase)) or (
        gathers[phase] if trainer == "fsdp2" and phase in gathers else "all_reduce"
    )
    run = hurt(trainer, f"lock@1:3:{phase}", until={1: "take_twice", 0: peer})
    assert PHASES[phase] in run.functions(1)
    truth = run.truth[0]["where"]
    assert truth["phase"] == phase
    # gloo reduces and scatters by an all-reduce
    operation = truth["collective"].replace("reduce_scatter", "all_reduce")
    assert run.pending(0) == f"gloo:{operation}"
