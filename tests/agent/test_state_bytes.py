"""What a rank holds for training, counted by shapes, and the facts from which it is predicted."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from rankscope.agent.probes.statebytes import expectation, state_bytes
from support.observed import observed


def model() -> torch.nn.Sequential:
    """8·16 + 16 + 16·4 + 4 = 212 parameters."""
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4))


def train(trained: torch.nn.Module, *optimizers: torch.optim.Optimizer, steps: int = 2) -> None:
    for _ in range(steps):
        trained(torch.ones(2, 8)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()


def test_the_state_is_counted_after_the_second_update() -> None:
    """Parameter, gradient and two moments of fp32 are 16 bytes, and the facts say the same."""
    plain = model()
    optimizer = torch.optim.AdamW(plain.parameters())
    with observed((plain, optimizer)) as seen:
        train(plain, optimizer, steps=1)
        assert seen.observer.memory.read().state_bytes is None
        train(plain, optimizer, steps=1)
        assert seen.observer.memory.read().state_bytes == 212 * 16
        facts = seen.observer.facts.read()
        assert seen.observer.facts_changed
    assert facts["parameters"] == "212"
    assert facts["state_factors"] == "4,4,8"
    assert facts["spread"] == "single"
    assert seen.faults == []


def test_it_is_counted_rarely() -> None:
    """A large model's parameters are not gone through at each update."""
    plain = model()
    optimizer = torch.optim.SGD(plain.parameters())
    counted = []
    with observed((plain, optimizer)) as seen:
        for update in range(1, 300):
            seen.observer.state.bytes = None
            train(plain, optimizer, steps=1)
            if seen.observer.state.bytes is not None:
                counted.append(update)
    assert counted == [2, 16, 256]


def test_what_is_frozen_has_no_gradient_and_what_is_tied_counts_once() -> None:
    """Nor does a frozen parameter have moments."""
    tied = torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 8, bias=False))
    tied[1].weight = tied[0].weight
    tied.append(torch.nn.Linear(8, 1, bias=False))
    tied[2].weight.requires_grad = False
    optimizer = torch.optim.Adam([p for p in tied.parameters() if p.requires_grad])
    train(tied, optimizer)
    parameters = list(tied.parameters())
    counted = state_bytes(parameters, [optimizer])
    assert counted == 64 * 16 + 8 * 4
    facts = expectation(parameters, [optimizer], "plain")
    factors = [float(value) for value in facts["state_factors"].split(",")]
    assert sum(factors) * int(facts["parameters"]) == pytest.approx(counted, rel=1e-4)


@pytest.mark.parametrize(
    ("make", "factors"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), "4,4,0"),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), "4,4,4"),
        (lambda p: torch.optim.AdamW(p, amsgrad=True), "4,4,12"),
        (lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.9), "4,4,12"),
        (lambda p: torch.optim.Adagrad(p), "4,4,4"),
        (lambda p: torch.optim.RAdam(p), "4,4,8"),
        (lambda p: torch.optim.NAdam(p), "4,4,8"),
        (lambda p: torch.optim.Adamax(p), "4,4,8"),
    ],
)
def test_what_an_optimizer_keeps_is_known_by_its_class(make: Any, factors: str) -> None:
    """And is what it really keeps."""
    plain = model()
    optimizer = make(plain.parameters())
    train(plain, optimizer)
    parameters = list(plain.parameters())
    assert expectation(parameters, [optimizer], "plain")["state_factors"] == factors
    each = sum(float(value) for value in factors.split(","))
    assert state_bytes(parameters, [optimizer]) == 212 * each


def test_an_optimizer_that_is_not_known_is_not_predicted() -> None:
    """What it keeps is counted all the same."""

    class Own(torch.optim.SGD):
        pass

    plain = model()
    optimizer = Own(plain.parameters(), lr=0.1, momentum=0.9)
    with observed((plain, optimizer)) as seen:
        train(plain, optimizer)
        assert seen.observer.memory.read().state_bytes == 212 * 12
        assert "parameters" not in seen.observer.facts.read()
    assert seen.faults == []


@contextmanager
def world(size: int) -> Iterator[None]:
    """This process as rank 0 of ``size``, whose collectives do nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("mesh", "spread", "parts"), [((4,), "fsdp", 4), ((2, 2), "hybrid 2", 2), ((1,), "fsdp", 1)]
)
def test_shards_count_as_what_this_rank_holds(
    mesh: tuple[int, ...], spread: str, parts: int
) -> None:
    """The facts are of the whole model, and say over how many ranks it is cut."""
    ranks = 1
    for size in mesh:
        ranks *= size
    with world(ranks):
        sharded = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4))
        names = ("replicate", "shard")[-len(mesh) :]
        fully_shard(sharded, mesh=init_device_mesh("cpu", mesh, mesh_dim_names=names))
        optimizer = torch.optim.AdamW(sharded.parameters())
        train(sharded, optimizer)
        parameters = list(sharded.parameters())
        facts = expectation(parameters, [optimizer], "fsdp2")
        assert facts == {"parameters": "212", "state_factors": "4,4,8", "spread": spread}
        assert state_bytes(parameters, [optimizer]) == 212 * 16 / parts


def test_sparse_gradients_are_no_trouble() -> None:
    """They are not counted."""
    table = torch.nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(list(table.parameters()))
    with observed((table, optimizer)) as seen:
        for _ in range(2):
            optimizer.zero_grad()
            table(torch.tensor([1, 2])).sum().backward()
            optimizer.step()  # type: ignore[no-untyped-call]
        assert seen.observer.memory.read().state_bytes == 40 * 12
    assert seen.faults == []
