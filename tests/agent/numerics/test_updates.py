"""Whether a step had its update, in loops that say where steps end and in those that do not."""

import gc
import weakref
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

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


def growing(step: int) -> int:
    """Microbatches of a step in a run that takes more of them as it goes on, and then fewer."""
    return (1, 2, 4, 3)[step // 10]


@pytest.mark.parametrize("first", ["hook", "attach"])
@pytest.mark.parametrize("left", [(), ("0.weight",), ("5.bias",)])
@pytest.mark.parametrize("back", ["update", "never"])
def test_gradients_that_leave_their_place_in_a_hook_are_not_gone(
    first: str, left: tuple[str, ...], back: str
) -> None:
    """A loop with gradients of its own (``main_grad``) may take more microbatches as it goes on: no
    backward is taken for a step."""
    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    main: dict[Any, torch.Tensor] = {
        one: torch.zeros_like(one) for name, one in model.named_parameters() if name not in left
    }

    def move(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        main[parameter].add_(parameter.grad)
        parameter.grad = None

    def hook() -> None:
        for parameter in main:
            parameter.register_post_accumulate_grad_hook(move)

    if first == "hook":
        hook()
    with observed((model, optimizer)) as seen:
        if first == "attach":
            hook()
        for step in range(40):
            for _ in range(growing(step)):
                model(torch.ones(1, 2)).sum().backward()
            for parameter, gradient in main.items():
                parameter.grad = None if back == "never" else gradient
            optimizer.step()
            optimizer.zero_grad()
            for gradient in main.values():
                gradient.zero_()
        assert [record.step for record in seen.steps] == list(range(1, 41))
        assert {record.updated for record in seen.steps} == {True}
        assert [one.microbatches for one in seen.steps] == [growing(step) for step in range(40)]
        assert seen.faults == []


@pytest.mark.usefixtures("lone_group")
def test_gradients_that_fsdp2_keeps_for_more_microbatches_than_before_are_not_gone() -> None:
    """They wait unsharded for the last one; where they are then is in ``grad``."""
    mesh = init_device_mesh("cpu", (1,))
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    skips = (7, 18, 27, 39)
    with observed((model, optimizer)) as seen:
        for step in range(40):
            for left in reversed(range(growing(step))):
                model.set_requires_gradient_sync(not left)  # type: ignore[operator]
                model(torch.ones(2, 8)).sum().backward()
            if step + 1 not in skips:
                optimizer.step()
            optimizer.zero_grad()
        model(torch.ones(2, 8))
        assert [record.step for record in seen.steps] == list(range(1, 41))
        assert [record.step for record in seen.steps if not record.updated] == list(skips)
        assert seen.faults == []


@pytest.mark.parametrize("where", ["in the loop", "in a hook until the last microbatch"])
def test_of_gradients_that_a_loop_itself_takes_away_few_are_taken_for_steps(where: str) -> None:
    """When it takes more microbatches than before, that looks like an update that was left out;
    after an update or some it does no more."""
    model = torch.nn.Linear(3, 1)
    both: tuple[Any, ...] = tuple(model.parameters())
    optimizer = torch.optim.SGD(both, lr=0.1)

    def drop(parameter: torch.Tensor) -> None:
        parameter.grad = None

    with observed((model, optimizer)) as seen:
        for step in range(40):
            for left in reversed(range(growing(step))):
                handles = []
                if left and where != "in the loop":
                    handles = [one.register_post_accumulate_grad_hook(drop) for one in both]
                model(torch.randn(2, 3)).sum().backward()
                for handle in handles:
                    handle.remove()
                if where == "in the loop":
                    model.weight.grad = model.bias.grad = None
            optimizer.step()
            optimizer.zero_grad()
        assert 40 <= len(seen.steps) <= 40 + 2 * (3 if where == "in the loop" else 1)


def test_a_left_out_update_is_seen_where_fewer_microbatches_are_taken_than_before() -> None:
    """Gradients that were between microbatches, and are gone before one, were cleared."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed((model, optimizer)) as seen:
        for step in range(1, 41):
            for _ in range(growing(40 - step)):
                model(torch.randn(2, 3)).sum().backward()
            if step not in (15, 22, 36):
                optimizer.step()
            optimizer.zero_grad()
        assert [record.step for record in seen.steps] == list(range(1, 41))
        assert [one.step for one in seen.steps if not one.updated] == [15, 22, 36]


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_an_update_that_asks_for_gradients_several_times_is_one_step(search: str | None) -> None:
    """L-BFGS has its closure clear them and compute them anew, now and then more often."""
    model = torch.nn.Linear(3, 1)
    optimizer: Any = torch.optim.LBFGS(
        model.parameters(), lr=0.01, max_iter=4, line_search_fn=search
    )
    calls = 0

    def closure() -> float:
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3) * (1 + calls % 7)).square().sum()
        loss.backward()
        return float(loss.detach())

    with observed((model, optimizer)) as seen:
        for _ in range(20):
            optimizer.step(closure)
        assert [record.step for record in seen.steps] == list(range(1, 21))
        assert {record.updated for record in seen.steps} == {True}


def test_an_update_that_raises_ends_all_the_same() -> None:
    """The loop catches what its closure raises, and goes on: that step had none."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def refuse() -> float:
        raise ArithmeticError("the user's own")

    with observed((model, optimizer)) as seen:
        for step in range(1, 13):
            model(torch.ones(2, 3)).sum().backward()
            if step == 6:
                with pytest.raises(ArithmeticError):
                    optimizer.step(refuse)
            elif step != 9:
                optimizer.step()
            optimizer.zero_grad()
        assert [record.step for record in seen.steps if not record.updated] == [6, 9]


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


@pytest.mark.parametrize("watched", ["GD", "DG", "G", "D"])
@pytest.mark.parametrize("clears", ["before", "after"])
@pytest.mark.parametrize("order", ["DG", "GD"])
def test_an_adversary_s_turns_are_no_steps(watched: str, clears: str, order: str) -> None:
    """Of two models that train in turn one may take several turns to the other's one, and fewer
    later: what the one's loss leaves in the other, or does not, is no update that was left out."""
    models = {"G": torch.nn.Linear(3, 3), "D": torch.nn.Linear(3, 1)}
    optimizers = {name: torch.optim.SGD(m.parameters(), lr=0.01) for name, m in models.items()}
    with observed(*((models[name], optimizers[name]) for name in watched)) as seen:
        for step in range(20):
            for turn in order:
                for _ in range(3 if turn == "D" and step < 10 else 1):
                    made = models["G"](torch.randn(2, 3))
                    if clears == "before":
                        optimizers[turn].zero_grad()
                    models["D"](made.detach() if turn == "D" else made).mean().backward()
                    optimizers[turn].step()
                    if clears == "after":
                        optimizers[turn].zero_grad()
        turns_taken = 20 if watched[0] == "G" else 10 * 3 + 10
        assert [record.updated for record in seen.steps] == [True] * turns_taken


def test_what_is_known_of_a_loop_is_asked_once() -> None:
    """A look costs much where caches are cold: in a steady loop there are a few, at its beginning,
    and none when observing goes on after a pause."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed((model, optimizer)) as seen:
        for again in range(3):
            for step in range(10):
                model(torch.randn(2, 3)).sum().backward()
                if (again, step) != (2, 5):
                    optimizer.step()
                optimizer.zero_grad()
            model(torch.randn(2, 3))
            assert (seen.observer.looks == 0) is (again < 2)
            if again < 2:
                seen.observer.uninstall()
                seen.observer.install()
                assert seen.observer.looks == 0
        assert [record.step for record in seen.steps if not record.updated] == [26]


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


@pytest.mark.parametrize("optimizer_class", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("microbatches", [1, 3])
@pytest.mark.parametrize("forgotten", ["0.weight", "4.bias", "9.weight"])
def test_a_gradient_that_is_never_cleared_hides_no_update_that_was_left_out(
    optimizer_class: Any, microbatches: int, forgotten: str
) -> None:
    """A NaN that stays in one gradient has a guard skip every update, and the count goes on."""
    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(10)))
    optimizer = optimizer_class(model.parameters(), lr=0.01)
    with observed((model, optimizer)) as seen:
        for step in range(1, 13):
            for _ in range(microbatches):
                model(torch.ones(1, 2)).sum().backward()
            if step < 6:
                optimizer.step()
            for name, parameter in model.named_parameters():
                if name != forgotten:
                    parameter.grad = None
        model(torch.ones(1, 2))
        assert [record.step for record in seen.steps] == list(range(1, 13))
        assert [record.step for record in seen.steps if not record.updated] == list(range(6, 13))
        assert {record.microbatches for record in seen.steps} == {microbatches}
        assert seen.faults == []


@pytest.mark.parametrize("optimizer_class", [torch.optim.SGD, torch.optim.AdamW])
def test_microbatches_that_train_a_small_part_are_no_steps(optimizer_class: Any) -> None:
    """One layer in twelve for each microbatch, as experts and early exits do."""
    model = torch.nn.ModuleList([torch.nn.Linear(3, 1) for _ in range(12)])
    model.forward = lambda at: model[at](torch.ones(2, 3))
    optimizer = optimizer_class(model.parameters(), lr=0.01)
    with observed((model, optimizer)) as seen:
        for step in range(12):
            for microbatch in range(3):
                model((step + microbatch) % 12).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert [record.updated for record in seen.steps] == [True] * 12
        assert {record.microbatches for record in seen.steps} == {3}


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
