"""Own gradients in one process: odd parameters, odd programs, scalers, outliers, and no trace."""

import copy
import gc
import io
import math
import pickle
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from rankscope.agent.probes.gradients import measure
from rankscope.agent.probes.gradients.accumulated import Accumulated
from rankscope.agent.probes.gradients.late import Arrived
from rankscope.agent.probes.gradients.ledger import by_trouble
from rankscope.agent.probes.gradients.names import clean
from rankscope.agent.probes.gradients.outliers import Outliers
from rankscope.agent.probes.gradients.probe import SCALE
from rankscope.protocol.messages import LateValues, ParameterNorms, Signs, Stage
from support.observed import Observed, observed


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.second(torch.tanh(self.first(x)))
        return out


def sgd(model: torch.nn.Module, lr: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr)


def step(model: Any, optimizer: Any, scale: float = 1.0) -> float:
    """One step; the norm of its gradients."""
    optimizer.zero_grad()
    (model(torch.ones(4, 8)).pow(2).mean() * scale).backward()
    norm = math.sqrt(
        sum(float(p.grad.double().norm() ** 2) for p in model.parameters() if p.grad is not None)
    )
    optimizer.step()
    return norm


def norms(seen: Observed) -> list[float | None]:
    return [record.local_norm for record in seen.steps]


def own_signs(seen: Observed) -> list[Any]:
    return [
        sign
        for kind, fields in seen.urgent
        if kind is Signs
        for sign in fields["signs"]
        if sign.stage in (Stage.GRADIENT, Stage.CAST, Stage.REDUCED)
    ]


def facts(seen: Observed) -> dict[str, str]:
    found: dict[str, str] = seen.observer.gradients.read()
    return found


@contextmanager
def nan_in(parameter: torch.Tensor) -> Iterator[None]:
    """One number of the gradient is NaN in each backward meanwhile."""

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        changed = gradient.clone()
        changed.view(-1)[0] = math.nan
        return changed

    handle = parameter.register_hook(spoil)  # type: ignore[no-untyped-call]
    yield
    handle.remove()


def test_one_process_has_the_norm_of_its_gradients() -> None:
    """In each step, as one computes it by hand."""
    model = Net()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        expected = [step(model, optimizer) for _ in range(3)]
        assert norms(seen) == pytest.approx(expected, rel=1e-5)
        assert facts(seen) == {"numerics": "hooks on parameters"}


class Odd(torch.nn.Module):
    """Parameters of all kinds, one output."""

    def __init__(self) -> None:
        super().__init__()
        self.tied = torch.nn.Linear(8, 8)
        self.again = torch.nn.Linear(8, 8)
        self.again.weight = self.tied.weight
        self.frozen = torch.nn.Parameter(torch.ones(8), requires_grad=False)
        self.whole = torch.nn.Parameter(torch.ones(8, dtype=torch.int64), requires_grad=False)
        self.empty = torch.nn.Parameter(torch.ones(0))
        self.wide = torch.nn.Parameter(torch.ones(8, dtype=torch.float64))
        self.angle = torch.nn.Parameter(torch.ones(8, dtype=torch.complex64))
        self.short = torch.nn.Parameter(torch.ones(8, dtype=torch.float16))
        self.unused = torch.nn.Parameter(torch.ones(8))
        self.rows = torch.nn.Embedding(5, 8, sparse=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.again(self.tied(x)) * self.frozen * self.whole + self.rows(torch.tensor([1, 1]))
        y = y.double() * self.wide + self.empty.sum() + (self.angle.real + self.angle.imag)
        out: torch.Tensor = y.float() + self.short.float()
        return out


def odd_optimizer(model: Odd) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)


def test_all_kinds_of_parameters_are_looked_at() -> None:
    """Sparse, complex, float64, fp16, empty, frozen, tied, integer and unused ones; in the norm."""
    model = Odd()
    optimizer = odd_optimizer(model)
    with observed((model, optimizer)) as seen:
        model(torch.ones(2, 8)).pow(2).mean().backward()
        squares = 0.0
        for parameter in model.parameters():
            if parameter.grad is not None:
                values = parameter.grad._values() if parameter.grad.is_sparse else parameter.grad
                squares += float(torch.linalg.vector_norm(values.to(torch.complex128)) ** 2)
        optimizer.step()
        assert norms(seen) == pytest.approx([math.sqrt(squares)], rel=1e-3)
        assert seen.faults == []
        assert facts(seen) == {"numerics": "hooks on parameters"}


@pytest.mark.parametrize("name", ["wide", "angle", "short", "again.bias"])
def test_a_nan_is_found_in_each_kind_of_parameter(name: str) -> None:
    """With the name of the user's model."""
    model = Odd()
    optimizer = odd_optimizer(model)
    with observed((model, optimizer)) as seen, nan_in(model.get_parameter(name)):
        model(torch.ones(2, 8)).pow(2).mean().backward()
        optimizer.step()
        found = [sign for sign in own_signs(seen) if sign.step == 1]
        assert [(sign.name, sign.value, sign.microbatch) for sign in found] == [(name, "nan", 1)]


def test_a_tied_parameter_is_named_once() -> None:
    """By its first name."""
    model = Odd()
    optimizer = odd_optimizer(model)
    with observed((model, optimizer)) as seen, nan_in(model.again.weight):
        model(torch.ones(2, 8)).pow(2).mean().backward()
        optimizer.step()
        assert [sign.name for sign in own_signs(seen) if sign.step == 1] == ["tied.weight"]


def test_parameters_added_later_are_looked_at_before_long() -> None:
    """A model may grow while it trains."""
    model: Any = Net()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        step(model, optimizer)
        model.second = torch.nn.Sequential(model.second, torch.nn.Linear(2, 2))
        for _ in range(64):
            expected = step(model, optimizer)
        assert seen.observer.gradients.ledger.norm == pytest.approx(expected, rel=1e-5)


def test_a_model_attached_twice_is_looked_at_once() -> None:
    """Neither its norm nor its signs are doubled."""
    model = Net()
    optimizer = sgd(model)
    with observed((model, optimizer), (model, optimizer)) as seen, nan_in(model.first.weight):
        step(model, optimizer)
        assert [sign.name for sign in own_signs(seen)] == ["first.weight"]
        assert len(model.first.weight._post_accumulate_grad_hooks) == 1


def test_two_models_with_an_optimizer_each_are_both_looked_at() -> None:
    """As a GAN has them: one norm a step of the first optimizer, over what was computed in it."""
    maker, judge = Net(), Net()
    ours, theirs = sgd(maker), sgd(judge)
    with observed((maker, ours), (judge, theirs)) as seen:
        for _ in range(2):
            expected = math.hypot(step(judge, theirs), step(maker, ours))
        assert norms(seen)[-1] == pytest.approx(expected, rel=1e-5)
        with nan_in(judge.second.bias):
            step(judge, theirs)
            step(maker, ours)
        assert ("second.bias", "nan") in [(sign.name, sign.value) for sign in own_signs(seen)]


def test_the_model_carries_nothing_away() -> None:
    """Into a copy, a pickle or a state; and nothing is left on it at the end."""
    model = Net()
    optimizer = sgd(model)
    plain = pickle.dumps(Net())
    with observed((model, optimizer)):
        step(model, optimizer)
        optimizer.zero_grad()
        copied = copy.deepcopy(model)
        loaded = pickle.loads(pickle.dumps(model))
        torch.save(model, io.BytesIO())
        for other in (copied, loaded):
            assert not any(one._post_accumulate_grad_hooks for one in other.parameters())
        assert set(model.state_dict()) == set(Net().state_dict())
    assert len(pickle.dumps(model)) == len(plain)
    assert not any(Accumulated.has(one) for one in model.parameters())


def test_gradients_and_model_are_not_kept_alive() -> None:
    """What is observed goes when the program lets go of it."""
    model: Any = Net()
    optimizer: Any = sgd(model)
    with observed() as seen:
        seen.observer.watch(model, optimizer)
        step(model, optimizer)
        gradient = weakref.ref(model.first.weight.grad)
        optimizer.zero_grad()
        gc.collect()
        assert gradient() is None
        kept = weakref.ref(model.first.weight)
        del model, optimizer
        seen.observer.noted.clear()
        gc.collect()
        assert kept() is None


@pytest.mark.parametrize("broken", ["saw", "begin", "end", "_look"])
def test_a_fault_of_ours_ends_the_looking_and_nothing_else(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training goes on to the same weights; the fault is told once."""
    apart, model = Net(), Net()
    theirs, ours = sgd(apart), sgd(model)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("broken")

    with observed((model, ours)) as seen:
        monkeypatch.setattr(seen.observer.gradients.ledger, broken, fail)
        for scale in (1.0, 1e25, 1.0):
            step(apart, theirs, scale=min(scale, 1e3))
            with nan_in(model.first.bias) if scale > 1e3 and broken == "_look" else _nothing():
                step(model, ours, scale=min(scale, 1e3))
        assert seen.faults == ["gradients"]
    if broken != "_look":
        for one, other in zip(apart.parameters(), model.parameters(), strict=True):
            assert torch.equal(one, other)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def test_a_gradient_that_is_never_cleared_is_said_to_be_kept() -> None:
    """From its second step on, with the first microbatch."""
    model = Net()
    optimizer = sgd(model, lr=0.0)
    with observed((model, optimizer)) as seen:
        for number in (1, 2, 3):
            with nan_in(model.second.bias) if number == 1 else _nothing():
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
            with nan_in(model.second.bias) if number == 2 else _nothing():
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


def test_a_backward_that_raises_leaves_nothing_behind() -> None:
    """The next one is looked at as if there had been none."""
    model = Net()
    optimizer = sgd(model)

    def refuse(gradient: torch.Tensor) -> None:
        raise ArithmeticError("the user's own")

    with observed((model, optimizer)) as seen:
        handle = model.first.weight.register_hook(refuse)  # type: ignore[no-untyped-call]
        with pytest.raises(ArithmeticError):
            model(torch.ones(4, 8)).pow(2).mean().backward()
        handle.remove()
        expected = step(model, optimizer)
        assert norms(seen) == pytest.approx([expected], rel=1e-5)
        assert seen.faults == []


def test_gradients_that_can_be_differentiated_are_left_alone() -> None:
    """``create_graph`` gives gradients that are part of a graph."""
    model = Net()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        x = torch.ones(4, 8, requires_grad=True)
        with pytest.warns(UserWarning, match="create_graph"):
            model(x).pow(2).mean().backward(create_graph=True)
        penalty = model.first.weight.grad
        assert penalty is not None
        assert penalty.requires_grad
        for parameter in model.parameters():
            parameter.grad = None
        step(model, optimizer)
        assert seen.faults == []


@pytest.mark.parametrize(
    ("name", "wrapped", "expected"),
    [
        ("module.a.weight", True, "a.weight"),
        ("_orig_mod.module.a.weight", True, "a.weight"),
        ("module.a.weight", False, "module.a.weight"),
        ("_fsdp_wrapped_module.a._fsdp_wrapped_module.weight", False, "a.weight"),
        ("a._checkpoint_wrapped_module.weight", False, "a.weight"),
    ],
)
def test_names_are_those_of_the_user_s_model(name: str, wrapped: bool, expected: str) -> None:
    """Without what wrappers have put into them."""
    assert clean(name, wrapped=wrapped) == expected


def test_the_worst_of_what_is_not_finite_is_told() -> None:
    """NaN before infinity, infinity before minus infinity; with the count of elements."""
    numbers = torch.tensor([1.0, math.inf, -math.inf, math.nan])
    assert measure.bad(numbers) == ("nan", 3)
    assert measure.bad(numbers[:3]) == ("inf", 2)
    assert measure.bad(numbers[2:3]) == ("-inf", 1)
    assert measure.bad(numbers[:1]) is None
    assert measure.bad(torch.tensor([1e30])) is None


def test_norms_add_up_without_overflowing() -> None:
    """NaN wins over infinity."""
    assert measure.total([3e200, 4e200]) == pytest.approx(5e200)
    assert math.isnan(measure.total([math.inf, math.nan]))
    assert measure.total([math.inf, 1.0]) == math.inf
    assert measure.total([]) == 0.0


def test_what_is_worst_comes_first_and_the_rest_is_counted() -> None:
    """A message has room for so many names."""
    names = [f"layer.{index}" for index in range(2000)]
    values = {index: float(index) for index in range(2000)} | {7: math.nan}
    told, left_out = by_trouble(names, values)
    assert (told[0].name, told[0].local_norm, told[0].value) == ("layer.7", None, "nan")
    assert told[1].name == "layer.1999"
    assert len(told) + left_out == 2000


def test_an_outlier_is_ten_times_its_own_past() -> None:
    """Of at least five steps; zero and what is not finite do not count."""
    outliers = Outliers()
    for norm in (1.0, 2.0, 0.0, math.inf, math.nan, 1.0, 1.5):
        assert not outliers.leaves(1e6)
        outliers.completed(norm)
    assert not outliers.leaves(1e6)
    outliers.completed(1.0)
    assert outliers.leaves(20.1)
    assert not outliers.leaves(19.0)
    assert not outliers.leaves(math.inf)
    assert not outliers.leaves(0.0)
