"""Large gradients that take long to read, as their step goes, are read at fewer steps."""

import math
from typing import Any

import pytest
import torch

from rankscope.agent.probes.gradients.ledger import ARMED_STEPS
from rankscope.agent.probes.gradients.turns import Turns
from rankscope.protocol.messages import Signs, Stage
from support.observed import Observed, observed

WIDE = 200  # squared: more than what counts as small


def settled(cost_s: float, step_s: float, steps: int = 400) -> Turns:
    turns = Turns()
    for number in range(1, steps):
        turns.begin(number - 1, number, number * step_s)
        if not turns.left_out:
            turns.took(0, cost_s)
    return turns


def test_what_costs_little_is_read_at_every_step() -> None:
    """Below its share of the step, or below what is free; then there is nothing to say of it."""
    assert settled(0.0005, 0.005).text() == settled(0.0074, 0.5).text() == ""


def test_what_costs_much_is_read_so_seldom_that_it_does_not() -> None:
    """As often as the share allows, which is said."""
    assert settled(0.0033, 0.14).text() == "large ones at every 16th step"
    assert settled(0.0033, 0.21).text() == "large ones at every 8th step"
    assert settled(0.0033, 0.23).every == 1


def test_reading_that_was_dear_in_the_first_steps_alone_is_done_at_every_step() -> None:
    """Caches are cold then, and steps are short."""
    turns = Turns()
    for number in range(1, 60):
        turns.begin(number - 1, number, number * 0.25)
        if not turns.left_out:
            turns.took(0, 0.004 if number < 8 else 0.0006)
    assert turns.every == 1


def test_a_busy_machine_is_no_reason_to_read_less() -> None:
    """What counts is the least of the newest costs."""
    turns = Turns()
    for number in range(1, 100):
        turns.begin(number - 1, number, number * 0.1)
        turns.took(0, 0.0003 if number % 4 == 0 else 0.02)
        assert not turns.left_out


@pytest.mark.parametrize("disturbed", [3, 2])
def test_a_machine_that_is_busy_in_every_step_is_none_either(disturbed: int) -> None:
    """Of each gradient the least counts that reading it takes, whichever the step."""
    turns = Turns()
    for number in range(1, 100):
        turns.begin(number - 1, number, number * 0.5)
        assert not turns.left_out
        for gradient in range(30):
            turns.took(gradient, 0.01 if (gradient + number) % disturbed else 0.00002)


def test_what_is_dear_by_itself_is_not_taken_for_a_busy_machine() -> None:
    """One short reading long ago is forgotten."""
    turns = Turns()
    for number in range(1, 1000):
        turns.begin(number - 1, number, number * 0.1)
        if not turns.left_out:
            turns.took(0, 0.0001 if number == 1 else 0.005)
    assert turns.every == 32


def test_what_is_dear_at_its_quickest_is_paid_for_as_it_is() -> None:
    """What a step loses is what reading takes now, not what it once took."""
    turns = Turns()
    for number in range(1, 1000):
        turns.begin(number - 1, number, number * 0.11)
        if not turns.left_out:
            for gradient in range(4):
                turns.took(gradient, 0.0005 if (number // turns.every + gradient) % 4 else 0.005)
    assert turns.every == 32  # 6.5 ms, where 2 ms would do with each at its quickest


def one_nan(gradient: torch.Tensor) -> torch.Tensor:
    """Where no glance at step 5 falls."""
    spoilt = gradient.clone()
    spoilt.view(-1)[0] = math.nan
    return spoilt


class Trained:
    """A wide layer that trains with its gradients read at every fourth step."""

    def __init__(self, seen: Observed, model: torch.nn.Module) -> None:
        self.seen, self.model = seen, model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        seen.observer.watch(model, self.optimizer)
        self.turns: Any = seen.observer.gradients.ledger.turns
        self.turns._pace.every = 4
        values: Any = seen.observer.probes["parameter values"]
        for pace in (self.turns._pace, values._pace):
            pace.took = lambda *given: None  # as it is, also on a busy machine

    def step(self, spoils: str = "", loss: float = 1.0) -> None:
        """One step; the gradient of ``spoils`` has one NaN before it is looked at."""
        self.optimizer.zero_grad()
        handles = [
            parameter.register_hook(one_nan)  # type: ignore[no-untyped-call]
            for name, parameter in self.model.named_parameters()
            if name == spoils
        ]
        (self.model(torch.ones(2, WIDE)).mean() * loss).backward()
        for handle in handles:
            handle.remove()
        self.optimizer.step()

    def told(self, number: int) -> list[tuple[Stage, str]]:
        """The signs of a step."""
        return [
            (sign.stage, sign.name)
            for kind, fields in self.seen.urgent
            if kind is Signs
            for sign in fields["signs"]
            if fields["step"] == number
        ]


def test_between_two_turns_only_small_gradients_are_read() -> None:
    """The rank's own norm is known where all were read; nothing else is claimed."""
    with observed() as seen:
        trained = Trained(seen, torch.nn.Linear(WIDE, WIDE))
        for _ in range(9):
            trained.step()
        norms = [record.local_norm for record in seen.steps]
        assert [norm is not None for norm in norms] == [n % 4 == 0 for n in range(1, 10)]


def test_how_often_large_ones_are_read_is_a_fact() -> None:
    """In words, and as a number; neither where all are read at every step."""
    with observed() as seen:
        trained = Trained(seen, torch.nn.Linear(WIDE, WIDE))
        trained.step()
        facts = seen.observer.gradients.read()
        assert facts["numerics_large_every"] == "4"
        assert "large ones at every 4th step" in facts["numerics"]
        trained.turns._pace.every = 1
        assert "numerics_large_every" not in seen.observer.gradients.read()


def test_small_gradients_are_read_at_every_step() -> None:
    """And once one of them is bad, all are, in that step and for a while after it."""
    with observed() as seen:
        trained = Trained(seen, torch.nn.Sequential(torch.nn.Linear(WIDE, WIDE)))
        for number in range(1, 6):
            trained.step(spoils="0.bias" if number == 5 else "")
        assert (Stage.GRADIENT, "0.bias") in trained.told(5)
        for _ in range(ARMED_STEPS):
            trained.step()
        norms = [record.local_norm for record in seen.steps[5:]]
        assert len(norms) == ARMED_STEPS
        assert None not in norms


def test_a_bad_loss_has_all_gradients_read_in_its_step() -> None:
    """It is known before the backward."""
    with observed() as seen:
        trained = Trained(seen, torch.nn.Linear(WIDE, WIDE, bias=False))
        for number in range(1, 6):
            trained.step(loss=math.nan if number == 5 else 1.0)
        assert (Stage.GRADIENT, "weight") in trained.told(5)


def test_a_gradient_that_stays_bad_is_named_at_the_next_look() -> None:
    """With its microbatch: that is one step later where every second is read."""
    with observed() as seen:
        trained = Trained(seen, torch.nn.Linear(WIDE, WIDE))
        trained.turns._pace.every = 2
        for number in range(1, 7):
            trained.step(spoils="weight" if number >= 5 else "")
        assert (Stage.GRADIENT, "weight") not in trained.told(5)
        assert (Stage.GRADIENT, "weight") in trained.told(6)
        microbatches = {
            sign.microbatch
            for kind, fields in seen.urgent
            if kind is Signs and fields["step"] == 6
            for sign in fields["signs"]
            if sign.stage is Stage.GRADIENT
        }
        assert microbatches == {1}


def test_what_was_not_read_is_not_said_to_have_been_looked_at() -> None:
    """A bad gradient that shows only in the update leaves open where it came from."""
    with observed() as seen:
        trained = Trained(seen, torch.nn.Linear(WIDE, WIDE))
        for number in range(1, 6):
            trained.step(spoils="weight" if number == 5 else "")
        looked = [
            fields["looked"]
            for kind, fields in seen.urgent
            if kind is Signs and fields["step"] == 5 and fields["signs"]
        ]
        assert looked
        assert all(Stage.GRADIENT not in stages for stages in looked)
