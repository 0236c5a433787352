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
WORLDS = (("ddp", 2),)


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gradients_of_ranks", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
def results(
    launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, int], dict[str, dict[str, Any]]]:
    """What the ranks of a trainer found, run once for each trainer and number of ranks."""
    known: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}

    def results(trainer: str, ranks: int) -> dict[str, dict[str, Any]]:
        if (trainer, ranks) not in known:
            folder = tmp_path_factory.mktemp("gradients")
            ended = launch(str(SCRIPT), trainer, str(folder), ranks=ranks)
            assert (ended.code, ended.stderr) == (0, ""), ended
            known[trainer, ranks] = torch.load(folder / "results.pt", weights_only=True)
        return known[trainer, ranks]

    return results


@pytest.mark.processes
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("trainer", "ranks"), WORLDS)
def test_gradients_are_those_of_one_batch(
    results: Callable[..., Any], trainer: str, ranks: int, case: str
) -> None:
    """Unequal token counts, a rank with none, and accumulation change nothing but rounding."""
    found = results(trainer, ranks)[case]
    loss, model = in_one_batch(case, ranks)
    torch.testing.assert_close(found["loss"], loss, rtol=1e-5, atol=1e-6)
    assert found["gradients"].keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(
            found["gradients"][name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name
        )


@pytest.mark.processes
@pytest.mark.parametrize(("trainer", "ranks"), WORLDS)
def test_clipping_is_by_the_norm_of_the_whole_update(
    results: Callable[..., Any], trainer: str, ranks: int
) -> None:
    """The norm is that of one large batch, and the clipped gradient has the norm asked for."""
    found = results(trainer, ranks)["unequal"]
    _, model = in_one_batch("unequal", ranks)
    norm = clip_gradients(model.parameters(), 0.01)
    torch.testing.assert_close(found["norm"], norm, rtol=1e-4, atol=1e-6)
    assert found["clipped"].item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.processes
def test_only_the_last_microbatch_reduces_gradients(results: Callable[..., Any]) -> None:
    """An update of two microbatches issues as many all-reduces as one of a single microbatch."""
    found = results("ddp", 2)
    reduced = {case: found[case]["collectives"].count("gloo:all_reduce") for case in CASES}
    assert reduced["one microbatch"] >= 1
    assert reduced["unequal"] == reduced["one microbatch"]
