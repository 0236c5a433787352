"""Whatever copies, saves or traces an attached model works as if it were not attached."""

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from support.observed import Observed, observed

compiles = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x)
        return y


class Scored(Block):
    """Returns its loss: the one kind of output that is read."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x)
        return y.pow(2).mean()


class Odd(Block):
    """Has a ``__call__`` of its own."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)


def nested() -> torch.nn.Module:
    """The class of the root is also that of a part of it."""
    return torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.nn.Tanh())


KINDS: list[Callable[[], torch.nn.Module]] = [nested, Block, Scored, Odd]


def sgd(model: torch.nn.Module) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(model: Any, optimizer: Any, steps: int = 2) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).pow(2).mean().backward()
        optimizer.step()


@contextmanager
def attached(kind: Callable[[], torch.nn.Module]) -> Iterator[tuple[Observed, Any, Any]]:
    """A model and an optimizer that have trained, watched."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = kind()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        train(model, optimizer)
        yield seen, model, optimizer


def saved(thing: Any) -> Any:
    stream = io.BytesIO()
    torch.save(thing, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


def pickled(thing: Any) -> Any:
    raw = pickle.dumps(thing)
    assert b"rankscope" not in raw  # it can be read where there is no rankscope
    return pickle.loads(raw)


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": pickled,
    "torch.save": saved,
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", list(COPIES))
def test_a_copy_of_a_model_is_a_plain_model(kind: Callable[[], Any], way: str) -> None:
    """It computes the same, is not watched, and can itself be saved; also after the end."""
    x = torch.ones(2, 4)
    with attached(kind) as (seen, model, _):
        twin = COPIES[way](model)
        expected = model(x)
        seen.read()
        assert torch.equal(twin(x), expected)
        twin(x).pow(2).mean().backward()
        assert not [event for event in seen.observer.noted if event[0] in (2, 3, 4)]
        assert not twin._forward_hooks
        assert not twin._forward_pre_hooks
    assert torch.equal(pickled(twin)(x), expected)
    assert torch.equal(pickled(model)(x), expected)
    assert seen.faults == []


@pytest.mark.parametrize("way", list(COPIES))
@pytest.mark.parametrize("made", [torch.optim.SGD, torch.optim.AdamW])
def test_a_copy_of_an_optimizer_is_a_plain_optimizer(way: str, made: Any) -> None:
    """It steps as the original does, and ends no step of the run."""
    torch.manual_seed(0)
    model = Block()
    optimizer = made(model.parameters(), lr=0.1)
    with observed((model, optimizer)) as seen:
        train(model, optimizer)
        twin = COPIES[way](optimizer)
        steps = len(seen.steps)
        if way != "copy":
            twin.step()
            assert len(seen.steps) == steps
            assert not twin._optimizer_step_pre_hooks
    pickled(twin)
    pickled(optimizer)
    assert seen.faults == []


def rebuilt(model: Any) -> Any:
    """The average of weights that is kept beside training."""
    return torch.optim.swa_utils.AveragedModel(model).module


X = torch.linspace(-1, 1, 8).reshape(2, 4)
TRACERS: dict[str, Callable[[Any], Any]] = {
    "jit.script": torch.jit.script,
    "jit.trace": lambda model: torch.jit.trace(model, X),  # type: ignore[no-untyped-call]
    "fx": torch.fx.symbolic_trace,
    "export": lambda model: torch.export.export(model, (X,)).module(),
    "export strict": lambda model: torch.export.export(model, (X,), strict=True).module(),
    "compile": lambda model: torch.compile(model, backend="eager", fullgraph=True),
    "compile aot": lambda model: torch.compile(model, backend="aot_eager", fullgraph=True),
    "make_fx": lambda model: torch.fx.experimental.proxy_tensor.make_fx(model)(X),
    "averaged": rebuilt,
}


def nodes(traced: Any) -> list[Any]:
    """What a tracer has put down: the graph's operations, and the modules it kept."""
    if isinstance(traced, torch.jit.ScriptModule):
        return [node.kind() for node in traced.inlined_graph.nodes()]
    graph = getattr(traced, "graph", None)
    return [] if graph is None else [(node.op, str(node.target)) for node in graph.nodes]


@compiles
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", list(TRACERS))
def test_what_is_traced_is_the_model_and_nothing_else(kind: Callable[[], Any], way: str) -> None:
    """The same graph as of a model that is not attached, and the same numbers out of it."""
    torch.manual_seed(0)
    plain = kind()
    train(plain, sgd(plain))
    expected_nodes = nodes(TRACERS[way](plain))
    with attached(kind) as (seen, model, optimizer):
        traced = TRACERS[way](model)
        assert nodes(traced) == expected_nodes
        assert torch.equal(traced(X), plain(X))
        traced(X).pow(2).mean().backward()
        optimizer.zero_grad()
        train(model, optimizer)
        assert seen.faults == []
        steps = seen.steps
    assert [step.step for step in steps] == [1, 2, 3, 4]
    assert all(step.loss is not None and step.forward_s > 0 for step in steps)
    assert nodes(TRACERS[way](model)) == expected_nodes


def test_functional_calls_and_transforms_see_no_probe() -> None:
    """vmap and grad over the model's own call, where no number can be read."""
    with attached(Scored) as (seen, model, optimizer):
        weights = dict(model.named_parameters())

        def loss(weights: Any, x: Any) -> Any:
            return torch.func.functional_call(model, weights, (x,))

        each = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, torch.ones(3, 2, 4))
        assert all(one.shape[0] == 3 for one in each.values())
        train(model, optimizer)
        assert seen.faults == []


def _in_child(model: Any, answers: Any) -> None:
    answers.put(model(torch.ones(2, 4)).sum().item())


@pytest.mark.processes
def test_a_model_goes_to_a_spawned_process() -> None:
    """As an argument, pickled by multiprocessing."""
    with attached(Block) as (_, model, _optimizer):
        context = torch.multiprocessing.get_context("spawn")
        answers = context.SimpleQueue()
        process = context.Process(target=_in_child, args=(model, answers))
        process.start()
        process.join(120)
        assert process.exitcode == 0
        assert answers.get() == pytest.approx(model(torch.ones(2, 4)).sum().item())
        answers.close()
        process.close()


def test_classes_are_as_they_were_afterwards() -> None:
    """Of every class: its own __call__ is back, or it has none again; parts were never watched."""
    for kind in KINDS:
        before = vars(type(kind())).get("__call__")
        with attached(kind) as (seen, model, _):
            seen.read()
            model[0](torch.ones(2, 4)) if kind is nested else model.inner(torch.ones(2, 4))
            assert not seen.observer.noted
        assert vars(type(model)).get("__call__") is before


def test_two_models_of_one_family_are_told_apart() -> None:
    """A class and one derived from it, watched at once: each call is noted once."""
    block, scored, third = Block(), Scored(), Scored()
    for first, second in ((block, scored), (scored, block)):
        with observed((first, sgd(first)), (second, sgd(second))) as seen:
            for model in (first, second, third):
                model(torch.ones(2, 4))
            forwards = [event[0] for event in seen.observer.noted]
            assert forwards == [2, 4, 3, 4]
    assert "__call__" not in vars(Block)
    assert "__call__" not in vars(Scored)


def test_a_model_whose_class_is_exchanged_later_stays_watched() -> None:
    """As FSDP2 and parametrizations do it: by a class derived from the model's own."""
    model = Block()
    optimizer = sgd(model)
    with observed((model, optimizer)) as seen:
        model.__class__ = type("Sharded", (Block,), {})
        train(model, optimizer)
        assert [step.microbatches for step in seen.steps] == [1, 1]
