"""Faults that end, stop or slow a process, or have it raise."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.processes

TRAINERS = ("ddp", "fsdp2")


@pytest.mark.parametrize(
    ("fault", "code"), [("sigkill", -9), ("exit0", 0), ("abort", -6), ("exception", 1)]
)
@pytest.mark.parametrize("trainer", TRAINERS)
def test_it_ends_as_its_name_says(
    hurt: Callable[..., Any], trainer: str, fault: str, code: int
) -> None:
    """In the step it was written for, after having said so."""
    run = hurt(trainer, f"{fault}@1:3", until={1: "ended"})
    assert run.ranks[1]["code"] == code, run.ranks[1]["output"]
    assert len(run.ranks[1]["steps"]) == 2
    (truth,) = run.truth
    assert (truth["ranks"], truth["step"], truth["where"]["phase"]) == ([1], 3, "forward")


def test_an_exception_is_raised_where_the_log_says(hurt: Callable[..., Any]) -> None:
    """The traceback ends at that line."""
    run = hurt("ddp", "exception@1:3", until={1: "ended"})
    file, function = run.truth[0]["where"]["source"].split(" in ")
    name, line = file.split(":")
    output = run.ranks[1]["output"]
    assert f'{name}", line {line}, in {function}' in output
    assert "InjectedError" in output.splitlines()[-1]


def test_a_stopped_rank_is_stopped(hurt: Callable[..., Any]) -> None:
    """Its process is in state T, and none of its threads runs."""
    run = hurt("ddp", "sigstop@1:3", until={1: "stopped"})
    assert (run.ranks[1]["state"], run.ranks[1]["silent"]) == ("T", True)
    assert run.ranks[0]["silent"] is False


@pytest.mark.parametrize(
    ("fault", "takes"),
    [
        ("loader-slow", "before_forward_s"),
        ("slow-forward", "forward_s"),
        ("slow-backward", "backward_s"),
        ("slow-optimizer", "optimizer_s"),
    ],
)
@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_slow_phase_takes_its_seconds_from_then_on(
    hurt: Callable[..., Any], trainer: str, fault: str, takes: str
) -> None:
    """On the rank, in every step; the run goes on to its end."""
    run = hurt(trainer, f"{fault}@1:3:0.2")
    assert [rank["code"] for rank in run.ranks] == [0, 0]
    assert min(run.steps(1, takes)[2:]) >= 0.2
    assert len(run.truth) == 1
