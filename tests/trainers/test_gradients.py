"""The gradient of ranks and microbatches together is that of one large batch."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from rankscope.trainers.clip import clip_gradients
from rankscope.trainers.model import Shape, Transformer, initialise
from rankscope.trainers.objective import loss_sum, valid_tokens

SCRIPT = Path(__file__).parent / "ranks" / "gradients.py"
CASES = ("full", "unequal", "one rank without", "one microbatch")
EXACT = {
    1: ("fsdp2",),
    2: (
        *("ddp", "ddp in small buckets", "fsdp2", "fsdp2 without resharding"),
        *("ddp recomputing all", "ddp recomputing some"),
        *("fsdp2 recomputing all", "fsdp2 recomputing some"),
    ),
    4: ("ddp", "fsdp2", "fsdp2 in two replicas"),
}
LOW = {
    2: (
        *("ddp in bf16", "ddp in bf16 recomputing all", "ddp in fp16"),
        *("fsdp2 in bf16", "fsdp2 in bf16 recomputing all", "fsdp2 in fp16"),
    )
}
ONE_CASE = {2: ("ddp compiled", "fsdp2 compiled", "ddp with a static graph")}
"""Number of ranks to the set-ups that compute in fp32, in less, and fp32 in one case alone."""

EVERY_EXACT = [(setup, ranks) for ranks, setups in EXACT.items() for setup in setups]
EVERY_LOW = [(setup, ranks) for ranks, setups in LOW.items() for setup in setups]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gradients_of_ranks", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


Found = dict[str, dict[str, Any]]
Results = Callable[[str, int], Found]

pytestmark = pytest.mark.processes


def in_one_batch(case: str, ranks: int) -> tuple[torch.Tensor, Transformer]:
    """Loss and gradients of everything that ``ranks`` ranks have in ``case``, in one process."""
    module = script()
    config = module.CONFIG
    model = Transformer(Shape(config.seq_len, config.layers, config.dim, config.heads))
    initialise(model, config.layers, config.seed)
    batches = [batch for rank in range(ranks) for batch in module.case(case, rank)]
    inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    loss = loss_sum(model(inputs), targets) / valid_tokens(batches)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach(), model


@pytest.fixture(scope="module")
def results(launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Results:
    """``results(setup, ranks)``: what the ranks found; set-ups share a launch."""
    known: dict[int, dict[str, Found]] = {}

    def results(setup: str, ranks: int) -> Found:
        if ranks not in known:
            folder = tmp_path_factory.mktemp("gradients")
            setups = EXACT[ranks] + LOW.get(ranks, ()) + ONE_CASE.get(ranks, ())
            ended = launch(str(SCRIPT), str(folder), *setups, ranks=ranks)
            assert (ended.code, ended.stderr) == (0, ""), ended
            known[ranks] = torch.load(folder / "results.pt", weights_only=True)
        return known[ranks][setup]

    return results


@pytest.mark.parametrize(
    ("setup", "ranks", "case"),
    [
        *((setup, ranks, case) for setup, ranks in EVERY_EXACT for case in CASES),
        *((setup, 2, script().ONE_CASE[setup]) for setup in ONE_CASE[2]),
    ],
)
def test_gradients_are_those_of_one_batch(
    results: Results, setup: str, ranks: int, case: str
) -> None:
    """Unequal token counts, a rank with none, and accumulation change nothing but rounding."""
    found = results(setup, ranks)[case]
    loss, model = in_one_batch(case, ranks)
    torch.testing.assert_close(found["loss"], loss, rtol=1e-5, atol=1e-6)
    assert found["gradients"].keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(
            found["gradients"][name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name
        )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("setup", "ranks"), EVERY_LOW)
def test_low_precision_gradients_are_those_of_one_batch_but_for_its_rounding(
    results: Results, setup: str, ranks: int, case: str
) -> None:
    """Each parameter's gradient is within a few units of bf16 of the fp32 one, as a vector."""
    found = results(setup, ranks)[case]
    loss, model = in_one_batch(case, ranks)
    torch.testing.assert_close(found["loss"], loss, rtol=1e-2, atol=1e-2)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        distance = (found["gradients"][name] - parameter.grad).norm() / parameter.grad.norm()
        assert distance < 0.05, name


@pytest.mark.parametrize(("setup", "ranks"), EVERY_EXACT)
def test_clipping_is_by_the_norm_of_the_whole_update(
    results: Results, setup: str, ranks: int
) -> None:
    """The norm is that of one large batch, and the clipped gradient has the norm asked for."""
    found = results(setup, ranks)["unequal"]
    _, model = in_one_batch("unequal", ranks)
    norm = clip_gradients(model.parameters(), 0.01)
    torch.testing.assert_close(found["norm"], norm, rtol=1e-4, atol=1e-6)
    assert found["clipped"].sum().sqrt().item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("setup", ["ddp", "fsdp2", "fsdp2 without resharding"])
def test_only_the_last_microbatch_reduces_gradients(results: Results, setup: str) -> None:
    """An update of two microbatches reduces as often as one of a single microbatch."""
    found = results(setup, 2)
    reduced = {
        case: sum("reduce" in collective for collective in found[case]["collectives"])
        for case in CASES
    }
    assert reduced["one microbatch"] >= 1
    assert set(reduced.values()) == {reduced["one microbatch"]}


@pytest.mark.parametrize("setup", ["ddp", "ddp in bf16", "fsdp2", "fsdp2 in bf16"])
def test_recomputing_changes_no_bit(results: Results, setup: str) -> None:
    """Activation checkpointing, of all blocks or of every other one, gives the same gradients."""
    how = ("all",) if "bf16" in setup else ("all", "some")
    for case in CASES:
        kept = results(setup, 2)[case]["gradients"]
        for what in how:
            again = results(f"{setup} recomputing {what}", 2)[case]["gradients"]
            assert again.keys() == kept.keys()
            assert all(torch.equal(again[name], kept[name]) for name in kept)


def test_smaller_buckets_are_more_reductions(results: Results) -> None:
    """``--bucket-mb`` reaches DDP."""
    assert results("ddp", 2)["layout"]["reductions"] == 1
    assert results("ddp in small buckets", 2)["layout"]["reductions"] > 2


def test_sharded_parameters_are_split_by_rows(results: Results) -> None:
    """FSDP2 keeps a half or a quarter of each parameter; two replicas keep two halves each."""
    whole = sum(p.numel() for p in in_one_batch("full", 1)[1].parameters())
    for setup, ranks, placements, shards in (
        ("fsdp2", 2, "(Shard(dim=0),)", 2),
        ("fsdp2", 4, "(Shard(dim=0),)", 4),
        ("fsdp2 in two replicas", 4, "(Replicate(), Shard(dim=0))", 2),
        ("ddp", 2, "None", 1),
    ):
        layout = results(setup, ranks)["layout"]
        assert layout["placements"] == [placements]
        assert layout["elements"] == whole / shards


@pytest.mark.parametrize(("setup", "ranks"), EVERY_LOW)
def test_parameters_rest_in_fp32_and_compute_in_less(
    results: Results, setup: str, ranks: int
) -> None:
    """The optimizer updates fp32 values; what a layer puts out has the precision asked for."""
    layout = results(setup, ranks)["layout"]
    assert layout["rests"] == ["torch.float32"]
    assert layout["computed"] == ["torch.bfloat16" if "bf16" in setup else "torch.float16"]


@pytest.mark.parametrize("setup", ["ddp in fp16", "fsdp2 in fp16"])
def test_an_overflow_skips_the_update_on_all_ranks(results: Results, setup: str) -> None:
    """Also where one rank's shard alone holds the infinity; the scale goes down everywhere."""
    for rank in results(setup, 2)["overflow"]["changed"]:
        assert not any(rank)
