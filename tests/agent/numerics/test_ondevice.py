"""Looks whose numbers come later. On a CPU they come at once, which is enough to see the rest."""

import math
from typing import Any

import pytest
import torch

from rankscope.agent import events
from rankscope.agent.probes.numerics.ondevice import MAX_NAMES, Look, OnDevice, found
from rankscope.protocol.messages import Sign, Stage


class Observer:
    """What is needed of one."""

    number = 5

    def __init__(self) -> None:
        self.noted: list[Any] = []

    def urgent(self) -> None:
        self.noted.append("urgent")


def test_magnitudes_of_a_step_are_told_with_its_number() -> None:
    """Of tensors of several types, when something among them is bad; with the stages looked at."""
    observer = Observer()
    device = OnDevice(observer)
    device.begin()
    device.note(Stage.INPUT, "args[0]", 1, torch.ones(3))
    device.note(Stage.FORWARD, "a", 1, torch.ones(3, dtype=torch.bfloat16))
    device.note(Stage.FORWARD, "b", 1, torch.tensor([1.0, math.nan]))
    device.note(Stage.FORWARD, "c", 1, torch.tensor([math.inf]))
    device.note(Stage.LOSS, "", 1, torch.tensor(math.nan))
    device.note(Stage.FORWARD, "empty", 1, torch.zeros(0))
    device.end(0.0)
    (code, _, number, signs, looked), woken = observer.noted
    assert (code, number, woken) == (events.SIGNS, 5, "urgent")
    assert [(sign.stage, sign.name, sign.value) for sign in signs] == [
        (Stage.FORWARD, "b", "nan"),
        (Stage.LOSS, "", "nan"),
    ]
    assert looked == (Stage.INPUT, Stage.FORWARD, Stage.LOSS)


def test_healthy_steps_say_nothing() -> None:
    """However large their numbers are."""
    observer = Observer()
    device = OnDevice(observer)
    for _ in range(3):
        device.begin()
        device.note(Stage.FORWARD, "a", 1, torch.full((4,), 3e38))
        device.note(Stage.FORWARD, "c", 1, torch.full((4,), 2.0, dtype=torch.complex64))
        device.end(0.0)
    assert observer.noted == []


def step(device: OnDevice, mask: float, loss: float) -> None:
    """A step of a model that is called with a mask, on a device."""
    device.begin()
    device.note(Stage.INPUT, "kwargs['mask']", 1, torch.tensor([0.0, mask]))
    device.note(Stage.FORWARD, "masked", 1, torch.tensor([1.0, mask]))
    device.note(Stage.LOSS, "", 1, torch.tensor(loss))
    device.end(0.0)


@pytest.mark.parametrize("mask", [-math.inf, math.nan])
def test_what_spoils_nothing_is_not_told(mask: float) -> None:
    """A mask of -inf, or a NaN for a missing label, at every step of healthy training."""
    observer = Observer()
    device = OnDevice(observer)
    for _ in range(5):
        step(device, mask, loss=1.0)
    assert observer.noted == []


def test_what_is_usual_is_no_origin() -> None:
    """Of a loss that is bad some day; a NaN where -inf is usual is one."""
    observer = Observer()
    device = OnDevice(observer)
    for _ in range(3):
        step(device, -math.inf, loss=1.0)
    step(device, -math.inf, loss=math.nan)
    step(device, math.nan, loss=math.nan)
    told = [one[3] for one in observer.noted if one != "urgent"]
    assert [[sign.stage for sign in signs] for signs in told] == [
        [Stage.LOSS],
        [Stage.INPUT, Stage.LOSS],
    ]


def test_a_bad_input_with_a_bad_loss_is_told_at_once() -> None:
    """Also in the first step."""
    observer = Observer()
    device = OnDevice(observer)
    step(device, math.nan, loss=math.nan)
    (_, _, _, signs, _), _ = observer.noted
    assert [sign.stage for sign in signs] == [Stage.INPUT, Stage.LOSS]


def test_a_bad_input_accuses_no_module() -> None:
    """Of its own microbatch; another one's first module is named."""
    looks = [
        Look(Stage.INPUT, "args[0]", 1),
        Look(Stage.FORWARD, "a", 1),
        Look(Stage.FORWARD, "a", 2),
        Look(Stage.FORWARD, "b", 2),
    ]
    assert found([(look, math.inf) for look in looks]) == (
        Sign(Stage.INPUT, 0, 1, "args[0]", "inf"),
        Sign(Stage.FORWARD, 0, 2, "a", "inf"),
    )


def test_many_parameters_are_counted() -> None:
    """A model of which everything is NaN is a short message."""
    signs = found([(Look(Stage.UPDATED, f"p{index}", 0), math.nan) for index in range(100)])
    assert len(signs) == MAX_NAMES
    assert signs[-1].others == 100 - MAX_NAMES
