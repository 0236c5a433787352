"""One hook for all gradients of a model, where nobody touches them until the backward has ended."""

import copy
import gc
import io
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from rankscope.agent.probes.gradients.accumulated import Accumulated
from rankscope.agent.probes.gradients.probe import Gradients
from rankscope.agent.probes.gradients.together import WHOLE, Together
from rankscope.protocol.messages import Stage
from support.gradients import nan_in, norms, own_signs, sgd
from support.observed import Observed, observed

WIDE = 192
"""A layer of WIDE × WIDE is large."""

SURE = WHOLE + 2
"""Steps after which one hook serves all: one before its hooks are told that gradients stay."""


class Run:
    """Two layers; their gradients stay, as far as is known, until the backward has ended."""

    def __init__(self, seen: Observed) -> None:
        torch.manual_seed(1)
        self.seen = seen
        self.model: Any = torch.nn.Sequential(
            torch.nn.Linear(WIDE, WIDE), torch.nn.Tanh(), torch.nn.Linear(WIDE, WIDE)
        )
        self.optimizer: Any = sgd(self.model, lr=1e-3)
        seen.observer.watch(self.model, self.optimizer)
        self.step()
        probe = seen.observer.gradients
        assert isinstance(probe, Gradients)
        self.probe = probe
        hooks = probe.places[0].hooks
        assert hooks is not None
        self.hooks: Any = hooks
        hooks.stays = hooks.together.allowed = True
        hooks.reduces = lambda: True

    def backward(self) -> None:
        self.optimizer.zero_grad()
        loss: torch.Tensor = self.model(torch.randn(4, WIDE)).pow(2).mean()
        torch.autograd.backward(loss)

    def step(self) -> float:
        """The norm of its gradients."""
        self.backward()
        gradients = [one.grad for one in self.model.parameters() if one.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients))
        self.optimizer.step()
        return norm

    def steps(self, count: int) -> list[float]:
        return [self.step() for _ in range(count)]

    @property
    def hooked(self) -> int:
        """How many parameters have a hook."""
        return sum(Accumulated.has(one) for one in self.model.parameters())


@pytest.fixture
def run() -> Iterator[Run]:
    with observed() as seen:
        yield Run(seen)


@pytest.fixture
def sure(run: Run) -> Run:
    """One hook serves all."""
    run.steps(SURE)
    assert run.hooked == 1
    run.seen.read()
    return run


def test_it_takes_some_backwards_until_one_hook_serves_all(run: Run) -> None:
    """And the norms are those that they were."""
    counts, expected = [], []
    for _ in range(SURE + 2):
        expected.append(run.step())
        counts.append(run.hooked)
    assert counts == [4] * WHOLE + [1] * (SURE + 2 - WHOLE)
    assert norms(run.seen)[1:] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["0.weight", "2.weight", "0.bias", "2.bias"])
def test_what_is_bad_is_named(sure: Run, name: str) -> None:
    """With its parameter, in its step."""
    with nan_in(sure.model.get_parameter(name)):
        sure.step()
    signs = [sign for sign in own_signs(sure.seen) if sign.stage is Stage.GRADIENT]
    assert [(sign.name, sign.step) for sign in signs] == [(name, SURE + 2)]


def let_go(run: Run) -> Callable[[], None]:
    """A hook of the user's takes a small gradient away as soon as it is there."""

    def take(parameter: torch.Tensor) -> None:
        parameter.grad = None

    bias = run.model.get_parameter("2.bias")
    handle = bias.register_post_accumulate_grad_hook(take)
    return handle.remove  # type: ignore[no-any-return]


def freeze(run: Run) -> Callable[[], None]:
    """That with the hook is not trained for a while."""
    first = run.model.get_parameter("0.weight")
    first.requires_grad_(False)
    return lambda: first.requires_grad_(True)


def add(run: Run) -> Callable[[], None]:
    """A parameter more, found at the next look."""
    run.model.append(torch.nn.Linear(WIDE, WIDE))
    run.probe.places[0].look_again()
    return lambda: None


def replace(run: Run) -> Callable[[], None]:
    """A layer becomes another one, found at the next look."""
    run.model[2] = torch.nn.Linear(WIDE, WIDE)
    run.probe.places[0].look_again()
    return lambda: None


def recompute(run: Run) -> Callable[[], None]:
    """Backwards within the backward: what is reached before it and after it."""
    before = run.model[0].forward
    run.model[0].forward = lambda x: checkpoint(before, x.requires_grad_(), use_reentrant=True)
    return lambda: setattr(run.model[0], "forward", before)


def twice(run: Run) -> Callable[[], None]:
    """A second backward of the same forward."""
    before = run.backward

    def backward() -> None:
        run.optimizer.zero_grad()
        loss = run.model(torch.randn(4, WIDE)).pow(2).mean()
        torch.autograd.backward(loss, retain_graph=True)
        torch.autograd.backward(loss)

    run.backward = backward  # type: ignore[method-assign]
    return lambda: setattr(run, "backward", before)


@pytest.mark.parametrize("change", [let_go, freeze, add, replace, recompute, twice])
def test_what_is_no_longer_as_it_was_seen_ends_it(
    sure: Run, change: Callable[[Run], Callable[[], None]]
) -> None:
    """From the next forward on each parameter has its own again; none is looked at wrongly."""
    undo = change(sure)
    sure.steps(2)
    trained = sum(one.requires_grad for one in sure.model.parameters())
    assert sure.hooked == trained
    undo()
    sure.probe.places[0].look_again()
    sure.steps(2)
    sure.seen.read()
    before = len(norms(sure.seen))
    expected = sure.steps(2)
    assert norms(sure.seen)[before:] == pytest.approx(expected, rel=1e-5)
    assert sure.seen.faults == []


@pytest.mark.parametrize("change", [let_go, twice, recompute])
def test_where_it_never_held_each_keeps_its_hook(
    run: Run, change: Callable[[Run], Callable[[], None]]
) -> None:
    """It is not tried again and again: each try costs a step's norm."""
    change(run)
    run.steps(6 * SURE)
    run.seen.read()
    assert norms(run.seen).count(None) <= 2
    assert run.hooked == 4
    assert run.seen.faults == []


def test_a_try_that_failed_is_made_again_later_and_later() -> None:
    """A run that alternates does not lose a norm each time."""
    together = Together()
    together.allowed = True
    tries = []
    for backward in range(2000):
        together.fired = 1
        together.ended(1, stay=not together.slots)
        if together.slots:
            assert not together.goes_on()
            together.end()
        elif together.ready:
            tries.append(backward)
            together.begin([(weakref.ref(torch.nn.Linear(1, 1)), "", 0, 0)])
    assert len(tries) == 5


def test_the_model_is_not_kept_alive(sure: Run) -> None:
    """Nor its gradients, nor its parameters, by where they are found."""
    gradient = weakref.ref(sure.model[0].weight.grad)
    sure.optimizer.zero_grad()
    gc.collect()
    assert gradient() is None
    kept = [weakref.ref(one) for one in sure.model.parameters()]
    del sure.model, sure.optimizer
    sure.seen.observer.noted.clear()
    gc.collect()
    assert [one() for one in kept] == [None] * 4


def test_nothing_forbids_what_users_do_with_parameters(sure: Run) -> None:
    """Swapping them asks for no weak reference; copies and files have nothing of ours."""
    model = sure.model
    sure.optimizer.zero_grad()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not any(one._post_accumulate_grad_hooks for one in other.parameters())
    torch.save(model, io.BytesIO())
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.double()
        model.float()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    sure.steps(3)
    assert sure.seen.faults == []


def test_what_is_taken_away_leaves_no_hook(sure: Run) -> None:
    """And begins anew with all of them, as after any pause."""
    sure.seen.observer.uninstall()
    assert not any(one._post_accumulate_grad_hooks for one in sure.model.parameters())
    sure.seen.observer.install()
    sure.step()
    assert sure.hooked == 4


def test_a_model_that_is_watched_within_another_is_not_served_twice(sure: Run) -> None:
    """The inner one's parameters are looked at already, though without a hook of their own."""
    sure.seen.observer.watch(sure.model[0], None)
    expected = sure.steps(2)
    assert sure.hooked == 1
    assert norms(sure.seen)[-2:] == pytest.approx(expected, rel=1e-5)


def test_where_large_ones_are_left_out_a_bad_small_one_has_them_read(sure: Run) -> None:
    """In its own step: they are still there."""
    turns: Any = sure.probe.ledger.turns
    turns.begin = lambda *_: setattr(turns, "left_out", True)
    sure.step()
    with nan_in(sure.model.get_parameter("0.bias")), nan_in(sure.model.get_parameter("2.weight")):
        sure.step()
    assert norms(sure.seen)[-2] is None
    assert {sign.name for sign in own_signs(sure.seen)} == {"0.bias", "2.weight"}


def test_the_hook_is_where_a_gradient_comes_first(sure: Run) -> None:
    """Whatever DDP waits for comes after it."""
    first: list[int] = []
    handles = [
        one.register_post_accumulate_grad_hook(lambda one: first.append(id(one)))
        for one in sure.model.parameters()
    ]
    sure.step()
    for handle in handles:
        handle.remove()
    assert [id(one) for one in sure.model.parameters() if Accumulated.has(one)] == first[:1]


def test_what_does_not_always_come_first_is_not_relied_on(run: Run) -> None:
    """The first of one backward may be the last of the next one."""
    together = Together()
    together.allowed = True
    for backward in range(10 * WHOLE):
        together.comes_first(backward // 2)
        together.fired = 1
        together.ended(1, stay=True)
        assert not together.ready


def test_a_part_that_is_taken_out_is_not_kept_alive(sure: Run) -> None:
    """Also where no forward with gradients comes after it."""
    kept = [weakref.ref(sure.model[0]), weakref.ref(sure.model[2])]
    sure.optimizer.zero_grad()
    sure.model[0] = sure.model[2] = None
    sure.optimizer.param_groups.clear()
    sure.seen.observer.noted.clear()
    gc.collect()
    assert [one() for one in kept] == [None] * 2


@pytest.mark.parametrize("name", ["0.weight", "0.bias"])
def test_an_old_gradient_of_what_is_frozen_is_no_gradient(sure: Run, name: str) -> None:
    """It stays where nobody clears it."""
    frozen = sure.model.get_parameter(name)
    frozen.requires_grad_(False)
    trained = [one for one in sure.model.parameters() if one is not frozen]

    def clear() -> None:
        for one in trained:
            one.grad = None

    sure.optimizer.zero_grad = clear
    frozen.grad = torch.full_like(frozen, float("nan"))
    sure.step()
    assert [sign for sign in own_signs(sure.seen) if sign.stage is Stage.GRADIENT] == []


class Words(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(8, WIDE, sparse=True)
        self.rest = torch.nn.Linear(WIDE, WIDE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.rest(self.words(x[:, 0].abs().long() % 8))
        return out


def test_what_is_reduced_where_it_lies_is_never_read_later() -> None:
    """A sparse gradient is handed to the reducer itself."""
    with observed() as seen:
        run = Run(seen)
        run.model = Words()
        run.optimizer = sgd(run.model)
        seen.observer.watch(run.model, run.optimizer)
        run.backward()
        probe: Any = seen.observer.gradients
        hooks = probe.places[-1].hooks
        hooks.stays = hooks.together.allowed = True
        for _ in range(2 * SURE):
            run.backward()
            run.optimizer.step()
        assert run.hooked == 3
        assert seen.faults == []
