"""Where the user has set a default device, what the agent needs on the CPU is still there."""

import ast
import random
from pathlib import Path

import numpy
import pytest
import torch
from torch.utils._device import _device_constructors

import rankscope.agent.probes
from rankscope.agent.checkpoint import Checkpointer
from rankscope.agent.probes.numerics.checksum import Summer

AGENT = Path(rankscope.agent.probes.__path__[0]).parent
HEED_IT = {constructor.__name__ for constructor in _device_constructors()}


def test_every_tensor_that_is_made_has_a_device_of_its_own() -> None:
    """Also those that are made beside a GPU alone."""
    bare = [
        f"{file.relative_to(AGENT)}:{call.lineno}"
        for file in AGENT.rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and ast.unparse(call.func.value) == "torch"
        and call.func.attr in HEED_IT
        and all(keyword.arg != "device" for keyword in call.keywords)
    ]
    assert bare == []


def test_checksums_are_the_same_under_another_default_device() -> None:
    """They are computed where the tensors are."""
    tensors = [torch.randn(5), torch.randn(300, 200), torch.arange(3)]
    expected = Summer().checksums(tensors).tolist()
    with torch.device("meta"):
        assert Summer().checksums(tensors).tolist() == expected


def test_a_state_is_saved_and_loaded_under_another_default_device(tmp_path: Path) -> None:
    """Parameters, optimizer and random numbers, bit for bit."""
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
    saver = Checkpointer(state={"model": model, "optimizer": optimizer}, dir=tmp_path, sync=True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.device("meta"):
        saved = saver.save(1)
    assert saved is not None
    assert saved.ok, saved
    drawn = (random.random(), numpy.random.rand(), torch.rand(1))
    with torch.no_grad():
        model.weight.add_(1.0)
    with torch.device("meta"):
        resumed = saver.resume()
    assert resumed is not None
    resumed.restore_random()
    assert (random.random(), numpy.random.rand(), torch.rand(1)) == drawn
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


@pytest.mark.parametrize("name", ["empty", "tensor", "arange", "zeros", "full"])
def test_what_heeds_a_default_device_is_known(name: str) -> None:
    """By the names under which it is called."""
    assert name in HEED_IT
