"""A large gradient that is left out is read all the same when a part of it leaves its past."""

import math
from typing import Any

import pytest
import torch

from rankscope.agent.probes.gradients import measure
from rankscope.agent.probes.gradients.glance import PARTS, Glances, part, promised
from rankscope.agent.probes.gradients.ledger import ARMED_STEPS
from rankscope.agent.probes.gradients.probe import Gradients
from rankscope.protocol.messages import ParameterNorms, Stage
from support.gradients import own_signs, sgd
from support.observed import Observed, observed

WIDE = 192
"""A layer of WIDE × WIDE is large."""

SHAPES = [(WIDE, WIDE), (1 << 16,), (5, 1 << 14), (40, 3, 300), (17, 2048), (1009, 40), (65, 512)]


def estimates(gradients: list[torch.Tensor], turn: int) -> list[float]:
    """What a glance at each of them promises."""
    glanced = [(at, one, part(one, turn)) for at, one in enumerate(gradients)]
    norms = measure.values([piece for _, _, piece in glanced])
    return [promised(one, norm) for one, norm in zip(glanced, norms, strict=True)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_each_part_promises_what_the_whole_holds(shape: tuple[int, ...], dtype: Any) -> None:
    """Where the elements are alike; also of a gradient that lies in memory the other way round."""
    gradient = torch.full(shape, 0.5, dtype=dtype)
    for tensor in (gradient, gradient.transpose(0, -1)):
        for turn in range(2 * PARTS):
            found = estimates([tensor], turn)
            assert found == pytest.approx([0.5 * math.sqrt(tensor.numel())], 1e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_parts_together_are_all_of_it_or_nearly(shape: tuple[int, ...]) -> None:
    """Nothing that stays is missed for ever: but for a rest of less than a part."""
    seen = 0
    for position in range(0, math.prod(shape), max(1, math.prod(shape) // 97)):
        gradient = torch.zeros(shape)
        gradient.view(-1)[position] = math.nan
        seen += any(math.isnan(estimates([gradient], turn)[0]) for turn in range(PARTS))
    assert seen >= 96


def test_gradients_of_several_types_are_told_apart() -> None:
    """Each promises what it holds, in whatever company."""
    kinds = (torch.float32, torch.bfloat16, torch.float64)
    gradients = [torch.full((WIDE, WIDE), 2.0**at, dtype=kind) for at, kind in enumerate(kinds)]
    assert estimates(gradients, 3) == pytest.approx([WIDE, 2 * WIDE, 4 * WIDE], 1e-3)


def test_a_glance_takes_no_part_in_what_autograd_records() -> None:
    """Also of gradients that are differentiated once more."""
    gradient = torch.ones(WIDE, WIDE, requires_grad=True) * 2.0
    assert estimates([gradient, torch.zeros(WIDE, WIDE)], 0) == pytest.approx([2 * WIDE, 0.0])


@pytest.mark.parametrize("rows", [256, 257, 511, 513, 1009, 1280, 50_000])
def test_the_runs_of_all_turns_are_all_rows(rows: int) -> None:
    """None is missed, whatever number of them there is; a part is no more than its share."""
    gradient = torch.arange(rows).view(rows, 1)
    seen: set[int] = set()
    for turn in range(PARTS):
        piece = part(gradient, turn)
        assert piece.numel() <= rows / PARTS + 1
        seen.update(piece.view(-1).tolist())
    assert seen == set(range(rows))


@pytest.mark.parametrize("shape", [(2, 1 << 20), (8, 300, 3000), (1, 1 << 17)])
def test_of_few_long_rows_a_part_is_a_run_of_one(shape: tuple[int, ...]) -> None:
    """So much is not read of what is left out."""
    gradient = torch.ones(shape)
    assert part(gradient, 3).numel() <= gradient.numel() / PARTS + math.prod(shape[2:])


def glance(glances: Glances, value: float, usual: float, number: int = 3) -> bool:
    gradient = torch.full((WIDE, WIDE), value / WIDE)
    glanced = glances.at([0], [gradient], number, {0: usual})
    norms = measure.values([piece for _, _, piece in glanced])
    return bool(glances.strike(glanced, norms, {0: usual}))


def test_what_promises_ten_times_what_it_had_strikes() -> None:
    """And NaN does, and infinity; what it never had is not known to be much."""
    assert not glance(Glances(), 9.9, 1.0)
    assert glance(Glances(), 10.1, 1.0)
    assert glance(Glances(), math.nan, 1.0)
    assert glance(Glances(), math.inf, 1.0)
    assert not glance(Glances(), 0.0, 0.0)
    assert not Glances().at([0], [torch.ones(WIDE, WIDE)], 3, {})


def test_one_that_promises_too_much_again_and_again_is_not_read_again_and_again() -> None:
    """It has to promise more each time, until all are read once more."""
    glances = Glances()
    assert [glance(glances, 20.0, 1.0) for _ in range(5)] == [True, *[False] * 4]
    assert glance(glances, 201.0, 1.0)
    glances.read()
    assert glance(glances, 20.0, 1.0)


class Run:
    """Two layers, of which from step 7 on only what is small is read, unless there is a reason."""

    def __init__(self, seen: Observed, stays: bool) -> None:
        torch.manual_seed(1)
        self.seen = seen
        self.model = torch.nn.Sequential(
            torch.nn.Linear(WIDE, WIDE), torch.nn.Tanh(), torch.nn.Linear(WIDE, WIDE)
        )
        self.optimizer = sgd(self.model, lr=0.0)
        seen.observer.watch(self.model, self.optimizer)
        self.step()
        probe = seen.observer.gradients
        assert isinstance(probe, Gradients)
        hooks = probe.places[0].hooks
        assert hooks is not None
        hooks.stays = stays
        turns: Any = probe.ledger.turns
        turns.begin = lambda _before, number, _now: setattr(turns, "left_out", number > 6)
        for _ in range(6):
            self.step()

    def step(self, name: str = "", factor: float = 1.0) -> None:
        """One step, with the gradient of that parameter ``factor`` times as large."""
        self.optimizer.zero_grad()
        handles = [
            parameter.register_hook(lambda gradient: gradient * factor)  # type: ignore[no-untyped-call]
            for known, parameter in self.model.named_parameters()
            if known == name
        ]
        loss: torch.Tensor = self.model(torch.randn(4, WIDE)).pow(2).mean()
        torch.autograd.backward(loss)
        for handle in handles:
            handle.remove()
        self.optimizer.step()

    @property
    def norms(self) -> list[float | None]:
        """From step 7 on."""
        return [record.local_norm for record in self.seen.steps[6:]]

    def told(self, number: int) -> list[str]:
        """The parameters of which norms were sent, the largest first."""
        return [
            norm.name
            for kind, fields in self.seen.urgent
            if kind is ParameterNorms and fields["step"] == number
            for norm in fields["norms"]
        ]


@pytest.mark.parametrize("stays", [False, True], ids=["read at once", "read together"])
@pytest.mark.parametrize("name", ["0.weight", "2.weight"])
def test_an_outlier_is_told_in_the_step_in_which_it_was_to_be_left_out(
    stays: bool, name: str
) -> None:
    """With its parameter, and all of the next steps is read, as after a sign."""
    with observed() as seen:
        run = Run(seen, stays)
        run.step()
        run.step(name, factor=1e4)
        assert run.norms[:2] == [None, None]
        assert run.norms[2] is not None
        assert run.norms[2] > 100
        assert run.told(9)[0] == name
        assert len(run.told(6)) == 4
        for _ in range(ARMED_STEPS + 1):
            run.step()
        assert [norm is None for norm in run.norms[3:]] == [False] * ARMED_STEPS + [True]
        assert seen.faults == []


@pytest.mark.parametrize("stays", [False, True], ids=["read at once", "read together"])
def test_a_gradient_that_is_bad_in_many_places_is_told_in_its_step(stays: bool) -> None:
    """Whatever step that is."""
    with observed() as seen:
        run = Run(seen, stays)
        run.step("2.weight", factor=math.nan)
        assert [(one.stage, one.name, one.step) for one in own_signs(seen)][:1] == [
            (Stage.GRADIENT, "2.weight", 8)
        ]


@pytest.mark.parametrize("stays", [False, True], ids=["read at once", "read together"])
def test_what_promises_much_and_holds_little_is_not_told(stays: bool) -> None:
    """The rank's norm did not leave its past; of a step that was not read whole none is told."""
    with observed() as seen:
        run = Run(seen, stays)
        run.step("2.weight", factor=0.0)
        for _ in range(3):
            run.step()
        assert all(not run.told(number) for number in range(7, 12))
        assert seen.faults == []


def hand_over(run: Run, factors: dict[str, float]) -> None:
    """A backward in which the model's gradients are handed over together, as FSDP2 does it, each
    ``factors`` times what it is."""
    hooks: Any = run.seen.observer.gradients.places[0].hooks
    ledger = run.seen.observer.gradients.ledger
    named = dict(run.model.named_parameters())
    indices = [ledger.names.index(name) for name in named]
    gradients = [
        one.grad.clone() * factors.get(name, 1.0)
        for name, one in named.items()
        if one.grad is not None
    ]
    trigger = torch.nn.Parameter(torch.ones(1))
    trigger.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
        lambda _: hooks.take(indices, gradients, None)
    )
    torch.autograd.backward((trigger * 2.0).sum())


@pytest.mark.parametrize(
    ("factors", "read"),
    [
        ({}, ["0.bias", "2.bias"]),
        ({"2.weight": 1e4}, ["0.bias", "2.bias", "2.weight"]),
        ({"2.weight": math.nan}, ["0.bias", "2.bias", "2.weight"]),
        ({"0.bias": math.nan}, ["0.bias", "0.weight", "2.bias", "2.weight"]),
    ],
    ids=["healthy", "an outlier", "NaN in one", "NaN in a small one"],
)
def test_what_is_handed_over_together_is_glanced_at_together(
    factors: dict[str, float], read: list[str]
) -> None:
    """Small ones are measured in the same call; large ones are read where there is a reason."""
    with observed() as seen:
        run = Run(seen, stays=False)
        run.step()
        hand_over(run, factors)
        ledger = seen.observer.gradients.ledger
        assert sorted(ledger.names[index] for index in ledger.norms) == read
        assert seen.faults == []
