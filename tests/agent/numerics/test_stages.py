"""What is said of the stages of a step around the gradient, from real hooks on real models."""

import copy
import gc
import math
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rankscope.agent.probes.numerics.outputs import FORWARDS
from rankscope.protocol.messages import Sign, Signs, Stage
from support.observed import Observed, observed


class Branch(nn.Module):
    """What it returns is added to the stream, so that autograd keeps nothing of it."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        down: Tensor = self.down(torch.tanh(self.up(x)))
        return down


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.branch = Branch()
        self.factor = 1.0

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x * self.factor + self.branch(self.norm(x))
        return out


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(x)
        return out


class Training:
    """A few steps of a small net, with ``strike`` before each microbatch's forward."""

    def __init__(self, seen: Observed | None, microbatches: int = 1) -> None:
        self.seen = seen
        self.microbatches = microbatches
        self.loss_factor = 1.0
        self.generator = torch.Generator().manual_seed(3)

    def start(self) -> None:
        torch.manual_seed(0)
        self.model: Any = Net()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def step(self, strike: Callable[[int, Tensor], None] = lambda microbatch, x: None) -> None:
        for microbatch in range(1, self.microbatches + 1):
            x = torch.randn(5, 4, generator=self.generator)
            strike(microbatch, x)
            loss = self.model(x).pow(2).mean() * self.loss_factor
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.seen is not None:
            self.seen.end_step(loss, None)


class Case:
    def __init__(self, microbatches: int = 1) -> None:
        self.train = Training(None, microbatches)
        self.train.start()
        self.model, self.optimizer = self.train.model, self.train.optimizer

    def __enter__(self) -> "Case":
        self._context = observed((self.model, self.optimizer))
        self.seen = self.train.seen = self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [fields for kind, fields in self.seen.urgent if kind is Signs]

    def signs(self, stage: Stage) -> list[Sign]:
        return [sign for one in self.messages for sign in one["signs"] if sign.stage is stage]

    def stages(self) -> list[Stage]:
        return [sign.stage for one in self.messages for sign in one["signs"]]


def spoiled(output: Tensor) -> Tensor:
    output = output.clone()
    output.view(-1)[0] = math.nan
    return output


def spoil(tensor: Tensor) -> None:
    tensor.view(-1)[0] = math.nan


def test_nothing_is_said_of_healthy_steps() -> None:
    """No sign, no fault, and an update in each record."""
    with Case() as case:
        for _ in range(5):
            case.train.step()
        assert case.seen.urgent == []
        assert [record.updated for record in case.seen.steps] == [True] * 5


def test_a_bad_input_is_named_with_its_place_and_microbatch() -> None:
    """No module is accused of what it was given."""
    with Case(microbatches=3) as case:
        case.train.step()
        case.train.step(lambda microbatch, x: spoil(x[:1]) if microbatch == 2 else None)
        (sign,) = case.signs(Stage.INPUT)
        assert (sign.step, sign.microbatch, sign.name, sign.count) == (2, 2, "args[0]", 1)
        assert case.signs(Stage.FORWARD) == []
        assert case.signs(Stage.PARAMETER) == []
        assert case.seen.faults == []


@pytest.mark.parametrize(
    "name", ["blocks.2.branch", "blocks.1.branch", "blocks.1.branch.down", "blocks.2", "first"]
)
def test_a_module_is_named_that_gave_something_bad_once(name: str) -> None:
    """Exactly it, its microbatch and its step, also where autograd keeps nothing of its output."""
    with Case(microbatches=2) as case:
        for _ in range(3):
            case.train.step()
        calls = iter(range(10))
        handle = case.model.get_submodule(name).register_forward_hook(
            lambda module, args, output: spoiled(output) if next(calls) == 1 else None
        )
        case.train.step()
        handle.remove()
        (sign,) = case.signs(Stage.FORWARD)
        assert (sign.name, sign.step, sign.microbatch, sign.value, sign.count) == (
            *(name, 4, 2, "nan"),
            1,
        )
        first = case.messages[0]
        assert [one.stage for one in first["signs"]] == [Stage.LOSS, Stage.FORWARD]
        assert {Stage.INPUT, Stage.PARAMETER, Stage.FORWARD} < set(first["looked"])
        assert case.seen.faults == []


def test_code_between_modules_is_told_of_the_module_around_it() -> None:
    """A module that was given something bad is not its origin."""
    with Case() as case:
        case.train.step()
        case.model.blocks[1].factor = math.inf
        case.train.step()
        (sign,) = case.signs(Stage.FORWARD)
        assert sign.name == "blocks.1"
    with Case() as case:
        case.train.step()
        head = case.model.head.forward
        case.model.forward = lambda x: head(torch.log(-case.model.first(x).abs()))
        case.train.step()
        (sign,) = case.signs(Stage.FORWARD)
        assert sign.name == ""


class Masked(nn.Module):
    """Attention that is given a mask, and hides the future by a module of its own."""

    class Hide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            future = torch.ones_like(x, dtype=torch.bool).triu(1)
            return (x * self.scale).masked_fill(future, -math.inf)

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Linear(4, 4)
        self.hide = self.Hide()
        self.out = nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q = self.queries(x)
        out: Tensor = self.out(torch.softmax(self.hide(q @ q.T) + mask, -1) @ q)
        return out


@pytest.mark.parametrize(
    ("spoilt", "stages"),
    [("gradient", {Stage.GRADIENT}), ("output", {Stage.LOSS, Stage.FORWARD}), ("input", None)],
)
def test_what_is_bad_in_healthy_steps_accuses_nobody(
    spoilt: str, stages: set[Stage] | None
) -> None:
    """A mask of -inf that the model is given, and one that a module makes; a NaN in it does."""
    torch.manual_seed(0)
    model: Any = Masked()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    mask = torch.zeros(5, 5)
    mask[:, 4] = -math.inf
    with observed((model, optimizer)) as seen:
        for step in range(1, 7):
            handles = []
            if step == 6 and spoilt == "gradient":
                handles.append(model.out.weight.register_hook(lambda gradient: gradient * math.nan))
            if step == 6 and spoilt == "output":
                handles.append(model.out.register_forward_hook(lambda *a: spoiled(a[2])))
            if step == 6 and spoilt == "input":
                spoil(mask)
            loss = model(torch.randn(5, 4), mask).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            for handle in handles:
                handle.remove()
            if step < 6:
                seen.end_step(loss, None)
        signs = [sign for kind, fields in seen.urgent if kind is Signs for sign in fields["signs"]]
        if stages is None:
            assert [s.name for s in signs if s.stage is Stage.INPUT] == ["args[1]"]
        else:
            assert not {Stage.INPUT, Stage.FORWARD} & {s.stage for s in signs} - stages
            assert stages <= {s.stage for s in signs}
            assert [s.name for s in signs if s.stage is Stage.FORWARD] == ["out"] * (
                Stage.FORWARD in stages
            )
        assert seen.faults == []


def test_a_bad_first_step_teaches_nothing() -> None:
    """What was bad in it is not usual afterwards."""
    with Case() as case:
        for _ in range(2):
            case.train.step(lambda microbatch, x: spoil(x))
        assert [sign.step for sign in case.signs(Stage.INPUT)] == [1, 2]


def test_a_bad_loss_of_finite_outputs_is_a_loss() -> None:
    """What was looked at says that outputs, inputs and parameters were finite."""
    with Case() as case:
        case.train.step()
        case.train.loss_factor = math.nan
        case.train.step()
        (loss,) = case.signs(Stage.LOSS)
        assert (loss.step, loss.microbatch, loss.value) == (2, 1, "nan")
        assert case.signs(Stage.FORWARD) == case.signs(Stage.INPUT) == []
        assert {Stage.INPUT, Stage.PARAMETER, Stage.FORWARD} < set(case.messages[0]["looked"])


def test_a_parameter_that_was_bad_before_is_said_so_in_its_step() -> None:
    """With its name, its number of elements and no state to blame."""
    with Case() as case:
        case.train.step()
        with torch.no_grad():
            case.model.blocks[2].branch.up.weight.view(-1)[:3] = math.inf
        case.train.step()
        (sign,) = case.signs(Stage.PARAMETER)
        assert (sign.name, sign.step, sign.count) == ("blocks.2.branch.up.weight", 2, 3)
        assert Stage.OPTIMIZER not in case.stages()


def test_state_that_spoils_an_update_is_named_in_that_step() -> None:
    """The gradients were finite, so it was the state; the next step finds the parameter bad."""
    with Case() as case:
        for _ in range(2):
            case.train.step()
        weight = case.model.head.weight
        handle = case.optimizer.register_step_pre_hook(
            lambda *_: spoil(case.optimizer.state[weight]["exp_avg"])
        )
        case.train.step()
        handle.remove()
        assert [(s.stage, s.step, s.name) for one in case.messages for s in one["signs"]] == [
            (Stage.OPTIMIZER, 3, "head.weight"),
            (Stage.UPDATED, 3, "head.weight"),
        ]
        case.train.step()
        assert [(s.step, s.name) for s in case.signs(Stage.PARAMETER)] == [(4, "head.weight")]


def test_an_update_that_spoils_by_a_bad_gradient_is_a_consequence() -> None:
    """Nothing else is accused of it."""
    with Case() as case:
        case.train.step()
        case.model.head.weight.register_hook(lambda gradient: gradient * math.nan)
        case.train.step()
        assert not {Stage.OPTIMIZER, Stage.PARAMETER, Stage.FORWARD} & set(case.stages())
        (sign,) = case.signs(Stage.UPDATED)
        assert (sign.name, sign.note) == ("head.weight", "so was its gradient")


def test_a_learning_rate_that_is_no_number_is_told() -> None:
    """All parameters are bad after the update, and the rate is why."""
    with Case() as case:
        case.train.step()
        case.optimizer.param_groups[0]["lr"] = math.nan
        case.train.step()
        assert {sign.note for sign in case.signs(Stage.UPDATED)} == {"the learning rate is nan"}
        assert Stage.OPTIMIZER not in case.stages()


def test_a_nan_that_no_loss_shows_is_found_after_the_update() -> None:
    """A row of an embedding that no batch uses."""
    torch.manual_seed(0)
    model = nn.Embedding(10, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed((model, optimizer)) as seen:
        for step in range(1, 4):
            if step == 3:
                with torch.no_grad():
                    model.weight[9, 0] = math.nan
            loss = model(torch.arange(5)).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.end_step(loss, None)
        ((_, fields),) = [one for one in seen.urgent if one[0] is Signs]
        assert [(s.stage, s.step, s.name) for s in fields["signs"]] == [
            (Stage.PARAMETER, 3, "weight"),
            (Stage.UPDATED, 3, "weight"),
        ]


def test_nothing_outlives_its_backward_and_little_waits_for_one() -> None:
    """No output is kept after a backward, and few forwards without one keep any."""
    with Case() as case:
        case.train.step()
        noted = case.seen.observer.forward.models[0].outputs
        assert not noted.any
        outputs = [weakref.ref(case.model(torch.randn(2, 4))) for _ in range(FORWARDS + 3)]
        gc.collect()
        assert [output() for output in outputs] == [None] * len(outputs)
        assert len(noted._forwards) <= FORWARDS
        case.train.step()
        assert not noted.any


def test_forwards_that_train_nothing_keep_nothing() -> None:
    """An evaluation leaves no note."""
    with Case() as case:
        with torch.no_grad():
            case.model(torch.full((2, 4), math.nan))
        noted = case.seen.observer.forward.models[0].outputs
        assert not noted.any
        case.train.step()
        assert case.seen.urgent == []


def test_a_loss_of_two_forwards_is_traced_to_the_first_of_them() -> None:
    """As that of an adversary, which looks at true and made samples before its backward."""
    with Case() as case:
        case.train.step()
        bad = torch.randn(5, 4)
        bad[0, 0] = math.inf
        loss = case.model(bad).pow(2).mean() + case.model(torch.randn(5, 4)).pow(2).mean()
        loss.backward()
        assert [(s.name, s.microbatch) for s in case.signs(Stage.INPUT)] == [("args[0]", 1)]


def test_weights_are_the_same_and_models_stay_clean() -> None:
    """Bit for bit with and without; a pickle and a deep copy have nothing of ours in them."""

    def trained(watch: bool) -> tuple[dict[str, Tensor], bytes]:
        case = Case(microbatches=2)
        if not watch:
            for step in range(4):
                case.train.step(lambda m, x, at=step: spoil(x) if at == 3 else None)  # type: ignore[misc]
            return case.model.state_dict(), pickle.dumps(case.model)
        with case:
            for step in range(4):
                case.train.step(lambda m, x, at=step: spoil(x) if at == 3 else None)  # type: ignore[misc]
            assert case.stages()
            copy.deepcopy(case.model)(torch.randn(2, 4))
            return case.model.state_dict(), pickle.dumps(case.model)

    (plain, dumped), (watched, dumped_watched) = trained(False), trained(True)
    for name, tensor in plain.items():
        assert torch.equal(tensor.view(torch.int32), watched[name].view(torch.int32)), name
    assert len(dumped) == len(dumped_watched)


class Counting:
    """A backend that counts what it is given to compile."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        return graph.forward


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's own, of dynamo
@pytest.mark.parametrize("whole", [True, False])
def test_compiled_code_is_neither_broken_nor_compiled_again(whole: bool) -> None:
    """One graph with and without; what is compiled is named as a whole."""
    torch._dynamo.reset()
    backend = Counting()
    with Case() as case:
        if whole:
            case.model.compile(backend=backend, fullgraph=True)
        else:
            block: Any = case.model.blocks[1]
            block.forward = torch.compile(block.forward, backend=backend, fullgraph=True)
        for _ in range(3):
            case.train.step()
        spoil(case.model.blocks[1].branch.up.weight.data)
        case.train.step()
        assert backend.graphs == 1
        assert [sign.name for sign in case.signs(Stage.FORWARD)] == ["" if whole else "blocks.1"]
        assert case.seen.faults == []
    torch._dynamo.reset()


def test_what_dynamo_leaves_alone_is_still_left_alone() -> None:
    """Layers in torch's own container, which is not compiled, are not compiled because of us."""
    torch._dynamo.reset()
    backend = Counting()
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with observed((model, optimizer)) as seen:
        model.compile(backend=backend)
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        assert backend.graphs == 0
        assert seen.faults == []
    torch._dynamo.reset()


def test_what_is_recomputed_is_told_of_the_first_time() -> None:
    """Under activation checkpointing the block's inner modules still have their names."""
    with Case() as case:
        block = case.model.blocks[1]
        forward = block.forward
        block.forward = lambda x: torch.utils.checkpoint.checkpoint(forward, x, use_reentrant=False)
        for _ in range(2):
            case.train.step()
        handle = block.branch.register_forward_hook(lambda m, a, output: spoiled(output))
        case.train.step()
        handle.remove()
        (sign,) = case.signs(Stage.FORWARD)
        assert sign.name == "blocks.1.branch"
        assert case.seen.faults == []
