"""Own gradients over steps: kept ones, scalers, norms that are sent, values that come late."""

import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from rankscope.agent.probes.gradients.late import Arrived
from rankscope.agent.probes.gradients.probe import SCALE
from rankscope.protocol.messages import LateValues, ParameterNorms, Stage
from support.gradients import Net, nan_in, own_signs, sgd, step
from support.observed import observed


def test_a_gradient_that_is_never_cleared_is_said_to_be_kept() -> None:
    """From its second step on, with the first microbatch."""
    model = Net()
    optimizer = sgd(model, lr=0.0)
    with observed((model, optimizer)) as seen:
        for number in (1, 2, 3):
            with nan_in(model.second.bias) if number == 1 else nullcontext():
                model(torch.ones(4, 8)).pow(2).mean().backward()
            optimizer.step()
            for parameter in (model.first.weight, model.first.bias, model.second.weight):
                parameter.grad = None
        found = [sign for sign in own_signs(seen) if sign.stage is Stage.GRADIENT]
        assert [(sign.step, sign.microbatch, sign.name) for sign in found] == [
            (number, 1, "second.bias") for number in (1, 2, 3)
        ]
        assert [bool(sign.note) for sign in found] == [False, True, True]


def test_a_scaler_s_factor_is_taken_out_of_the_norm() -> None:
    """And an overflow under it is marked, for it is ordinary."""
    model = Net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)
    with observed((model, optimizer)) as seen:
        for number in (1, 2):
            optimizer.zero_grad()
            loss = model(torch.ones(4, 8)).pow(2).mean()
            with nan_in(model.second.bias) if number == 2 else nullcontext():
                scaler.scale(loss).backward()
            expected = math.sqrt(
                sum(
                    float(p.grad.double().norm() ** 2)
                    for p in model.parameters()
                    if p.grad is not None
                )
            )
            if number == 1:
                first = expected / 1024
            scaler.step(optimizer)
            scaler.update()
            seen.end_step(None, None)
        records = seen.steps
        assert records[0].local_norm == pytest.approx(first, rel=1e-5)
        assert [record.loss_scale for record in records] == [1024.0, 2048.0]
        assert {sign.note for sign in own_signs(seen)} == {"scaler"}


def test_a_rank_that_leaves_its_own_past_sends_the_norms_of_its_parameters() -> None:
    """Of the step before, and of that step; the largest first."""
    model = Net()
    optimizer = sgd(model, lr=1e-4)
    with observed((model, optimizer)) as seen:
        for _ in range(7):
            step(model, optimizer)
        assert [fields for kind, fields in seen.urgent if kind is ParameterNorms] == []
        step(model, optimizer, scale=1e4)
        sent = [fields for kind, fields in seen.urgent if kind is ParameterNorms]
        assert [fields["step"] for fields in sent] == [7, 8]
        told = [norm.local_norm for norm in sent[1]["norms"]]
        assert len(told) == 4
        assert told == sorted(told, reverse=True)
        assert own_signs(seen) == []


def test_norms_go_with_the_first_sign_only() -> None:
    """An episode of a thousand steps does not send the model a thousand times."""
    model = Net()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen, nan_in(model.first.weight):
        for _ in range(3):
            step(model, optimizer)
        assert [f["step"] for kind, f in seen.urgent if kind is ParameterNorms] == [1]


def test_the_norms_can_be_asked_for() -> None:
    """Those of the last step, from any thread."""
    model = Net()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        step(model, optimizer)
        ((kind, fields),) = seen.read().observer.gradients.answer(seen.digest.step_of)
        assert (kind, fields["step"], fields["left_out"]) == (ParameterNorms, 1, 0)
        assert {norm.name for norm in fields["norms"]} == {
            *("first.weight", "first.bias", "second.weight", "second.bias")
        }


def test_what_came_off_a_device_late_is_of_its_step() -> None:
    """The norm of a step that is over, and the sign of its microbatch."""
    model = Net()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        step(model, optimizer)
        step(model, optimizer)
        probe = seen.observer.gradients
        probe._arrived(Arrived(1, 2, [(0, 3.0), (1, math.nan), (2, 4.0)]))
        (late,) = seen.read().outbox.late()
        assert isinstance(late, LateValues)
        assert late.step == 1
        assert late.local_norm is not None
        assert math.isnan(late.local_norm)
        (sign,) = own_signs(seen)
        assert (sign.step, sign.microbatch, sign.name, sign.value) == (1, 2, "first.bias", "nan")


def test_a_factor_that_came_off_a_device_is_taken_out() -> None:
    """It travels with the norms that it belongs to."""
    model = Net()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        step(model, optimizer)
        seen.observer.gradients._arrived(Arrived(1, 1, [(0, 3.0), (1, 4.0), (SCALE, 8.0)]))
        (late,) = seen.read().outbox.late()
        assert late.local_norm == pytest.approx(5.0 / 8.0)


def test_reentrant_checkpointing_is_looked_at_within_the_same_microbatch() -> None:
    """It runs a backward within the backward."""
    model = Net()
    optimizer = sgd(model)

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: torch.Tensor) -> Any:
            return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=True)

    outer = Outer()
    with observed((outer, optimizer)) as seen, nan_in(model.first.weight):
        outer(torch.ones(4, 8, requires_grad=True)).pow(2).mean().backward()
        optimizer.step()
        found = [sign for sign in own_signs(seen) if sign.step == 1]
        assert [(sign.name, sign.microbatch) for sign in found] == [("inner.first.weight", 1)]
        assert seen.faults == []
