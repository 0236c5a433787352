"""Whether a step had its update, in loops that say where steps end and in those that do not."""

import gc
import weakref
from typing import Any

import pytest
import torch

from rankscope.agent.probes.numerics.updates import SURE_AFTER, took_effect, turns
from support.observed import observed


class Loop:
    """A plain loop, of ``microbatches`` a step, that leaves out the updates of ``skips``."""

    def __init__(
        self, skips: tuple[int, ...], microbatches: int = 1, end_step: bool = False
    ) -> None:
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with observed((model, optimizer)) as seen:
            for step in range(1, 11):
                for _ in range(microbatches):
                    model(torch.randn(2, 3)).sum().backward()
                if step not in skips:
                    optimizer.step()
                optimizer.zero_grad()
                if end_step:
                    seen.end_step(None, None)
            model(torch.randn(2, 3))
            self.records = seen.steps
            assert seen.faults == []

    @property
    def skipped(self) -> list[int]:
        return [record.step for record in self.records if record.updated is False]


@pytest.mark.parametrize("microbatches", [1, 3])
@pytest.mark.parametrize("end_step", [True, False])
def test_a_step_without_update_is_a_step(microbatches: int, end_step: bool) -> None:
    """It has its number and says that there was none; steps after it keep theirs."""
    loop = Loop((6, 9), microbatches, end_step)
    assert [record.step for record in loop.records] == list(range(1, 11))
    assert loop.skipped == [6, 9]
    assert {record.microbatches for record in loop.records} == {microbatches}


@pytest.mark.parametrize("microbatches", [2, 3, 4, 5])
@pytest.mark.parametrize("skips", [(), (9, 17)], ids=["no skip", "skips"])
@pytest.mark.parametrize("short", [(), (12,)], ids=["even", "a short step"])
def test_gradients_that_wait_elsewhere_for_the_last_microbatch_are_not_gone(
    microbatches: int, skips: tuple[int, ...], short: tuple[int, ...]
) -> None:
    """As FSDP2's do, which accumulate unsharded: between microbatches no parameter has one."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = range(1, 25)
    with observed((model, optimizer)) as seen:
        for step in steps:
            kept = torch.zeros(1, 3)
            for left in reversed(range(microbatches - (step in short))):
                model(torch.randn(2, 3)).sum().backward()
                assert model.weight.grad is not None
                kept += model.weight.grad
                model.bias.grad = None
                model.weight.grad = None if left else kept
            if step not in skips:
                optimizer.step()
            optimizer.zero_grad()
        model(torch.randn(2, 3))
        assert [record.step for record in seen.steps] == list(steps)
        assert [record.step for record in seen.steps if not record.updated] == list(skips)
        assert seen.faults == []


def test_an_update_that_asks_for_gradients_several_times_is_one_step() -> None:
    """L-BFGS has its closure clear them and compute them anew."""
    model = torch.nn.Linear(3, 1)
    optimizer: Any = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=4)

    def closure() -> float:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).square().sum()
        loss.backward()
        return float(loss.detach())

    with observed((model, optimizer)) as seen:
        for _ in range(20):
            optimizer.step(closure)
        assert [record.step for record in seen.steps] == list(range(1, 21))
        assert {record.updated for record in seen.steps} == {True}


def test_updates_that_stop_for_good_go_on_as_steps() -> None:
    """A guard that skips every update from some step on does not stop the count."""
    loop = Loop(tuple(range(6, 11)))
    assert loop.skipped == [6, 7, 8, 9, 10]


def test_two_models_that_train_in_turn_are_no_skips() -> None:
    """The gradients that the second one's loss leaves in the first are cleared and not missed."""
    one, two = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    first = torch.optim.SGD(one.parameters(), lr=0.1)
    second = torch.optim.SGD(two.parameters(), lr=0.1)
    with observed((one, first), (two, second)) as seen:
        for _ in range(3 * SURE_AFTER):
            first.zero_grad()
            one(two(torch.randn(2, 3)).detach()).sum().backward()
            first.step()
            second.zero_grad()
            one(two(torch.randn(2, 3))).sum().backward()
            second.step()
        assert [record.updated for record in seen.steps] == [True] * 3 * SURE_AFTER


def test_a_loop_that_clears_at_its_beginning() -> None:
    """Where gradients are cleared is the loop's own affair."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed((model, optimizer)) as seen:
        for step in range(1, 11):
            optimizer.zero_grad()
            model(torch.randn(2, 3)).sum().backward()
            if step != 7:
                optimizer.step()
        assert [record.step for record in seen.steps if not record.updated] == [7]


def test_no_optimizer_no_flag() -> None:
    """A model that is watched alone says nothing about updates."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed((model, None)) as seen:
        for _ in range(3):
            model(torch.randn(2, 3)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.end_step(None, None)
        assert [record.updated for record in seen.steps] == [None] * 3


def test_gradients_that_are_left_in_part_are_no_skip() -> None:
    """A layer that is trained in some microbatches only says nothing about the others'."""
    one, other = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
    model = torch.nn.ModuleList([one, other])
    model.forward = lambda at: model[at](torch.ones(2, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed((model, optimizer)) as seen:
        for step in range(12):
            for at in (0, 1) if step < 6 else (1, 1):
                model(at).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert [record.updated for record in seen.steps] == [True] * 12
        assert seen.faults == []


def test_a_fault_in_seeing_updates_accuses_nobody() -> None:
    """Of steps whose update could not be seen it is not said that they had none."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed((model, optimizer)) as seen:
        seen.observer.fault(seen.observer.updates, RuntimeError("for a test"))
        for _ in range(3):
            model(torch.randn(2, 3)).sum().backward()
            optimizer.step()
            seen.end_step(None, None)
        assert [record.updated for record in seen.steps] == [None] * 3


def test_a_scaler_that_finds_an_overflow_skips_the_update() -> None:
    """With an ordinary optimizer, which it does not call, and with a fused one, which it does."""
    for fused in (False, True):
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        with observed((model, optimizer)) as seen:
            for step in range(1, 5):
                x = torch.full((2, 3), torch.inf if step == 3 else 1.0)
                scaler.scale(model(x).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                seen.end_step(None, None)
            assert [record.updated for record in seen.steps] == [True, True, False, True], fused
            assert seen.faults == []


def test_turns() -> None:
    """How often an update is followed by none."""
    assert turns([True] * 8) == 0
    assert turns([True, False] * 4) == 4
    assert turns([True, True, False, False]) == 1


def test_what_only_the_device_knows_is_not_known() -> None:
    """Nothing waits for a device to tell whether a fused update was made."""

    class Optimizer:
        def __init__(self) -> None:
            self.found_inf: Any = torch.ones((), device="meta")

    assert took_effect(Optimizer()) is None


def test_nothing_is_kept_alive() -> None:
    """A model and an optimizer that are let go of are gone."""
    with observed() as seen:
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen.observer.watch(model, optimizer)
        for _ in range(2):
            model(torch.randn(2, 3)).sum().backward()
            optimizer.step()
        gone = weakref.ref(model), weakref.ref(optimizer), weakref.ref(model.weight)
        del model, optimizer
        gc.collect()
        assert [one() for one in gone] == [None, None, None]
