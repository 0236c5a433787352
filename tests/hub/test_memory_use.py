"""Memory that is taken and not used: in pieces, or beyond what the budget says."""

import pytest

from rankscope.protocol import messages as m
from support.world import World

GIB = 1 << 30
FACTS = {"parameters": "1000000000", "state_factors": "4,4,8", "spread": "fsdp"}


def on_gpu(reserved: float, peak: float, total: int = 80) -> m.Memory:
    """Sizes in GiB."""
    return m.Memory(
        int(peak * GIB / 2),
        int(reserved * GIB),
        int(peak * GIB),
        int(reserved * GIB),
        total * GIB,
        GIB,
        GIB,
    )


def trained(memories: dict[int, m.Memory], steps: int = 30, ranks: int = 2) -> World:
    world = World(ranks=ranks)
    for _ in range(steps):
        world.step()
    for rank, memory in memories.items():
        world.beat(rank, memory=memory)
    return world


def test_what_is_reserved_far_above_what_was_ever_allocated_is_told() -> None:
    """A notice while there is room, with the figures and what to try."""
    found = trained({0: on_gpu(21, 20), 1: on_gpu(40, 20)}).finding("memory-fragmentation")
    assert (found.ranks, found.severity, found.step) == ([1], "info", None)
    assert (
        found.headline == "on rank 1 21.5 GB of GPU memory is reserved and was never in use at once"
    )
    assert found.evidence == ["rank 1: 42.9 GB reserved, at most 21.5 GB allocated, of 85.9 GB"]
    assert "expandable_segments" in found.next


def test_fragmentation_of_a_nearly_full_device_is_a_warning() -> None:
    """The next larger request may fail though the memory is there."""
    found = trained({0: on_gpu(75, 40), 1: on_gpu(40, 20)}).finding("memory-fragmentation")
    assert (found.ranks, found.severity) == ([0, 1], "warning")
    assert "up to" in found.headline


@pytest.mark.parametrize(
    "memory",
    [
        on_gpu(24, 20),  # a cache of a fifth
        on_gpu(0.6, 0.2),  # much of very little
        m.Memory(None, None, None, None, None, 40 * GIB, 40 * GIB),  # no allocator that tells
        m.Memory(0, 40 * GIB, None, None, 80 * GIB, GIB, GIB),
    ],
)
def test_what_an_allocator_keeps_in_hand_is_no_fragmentation(memory: m.Memory) -> None:
    """It is quick because it does."""
    assert trained({1: memory}).kinds() == []


def test_the_first_steps_settle_nothing() -> None:
    """What was tried out and is over is given back, or used."""
    assert trained({1: on_gpu(40, 20)}, steps=10).kinds() == []


def test_fragmentation_closes_when_it_is_over() -> None:
    """A second later at most."""
    world = trained({1: on_gpu(40, 20)})
    assert world.kinds() == ["memory-fragmentation"]
    world.beat(1, memory=on_gpu(21, 20))
    world.advance(1.5, moving=True)
    assert world.kinds() == []


def holding(*held: float) -> World:
    """Ranks of a model of 16 GB, sharded over all of them, that hold so many GB each."""
    world = World(ranks=len(held), hello=False)
    for rank, size in enumerate(held):
        world.hello(rank, facts=FACTS)
        memory = m.Memory(None, None, None, None, None, GIB, GIB, state_bytes=int(size * 1e9))
        world.beat(rank, memory=memory)
    return world


def test_a_rank_that_holds_what_should_be_sharded_is_told() -> None:
    """Beside the budget, and what that follows from."""
    found = holding(4, 4, 16, 4).finding("memory-over-budget")
    assert (found.ranks, found.severity) == ([2], "warning")
    assert found.headline == (
        "rank 2 holds 16 GB of parameters, gradients and optimizer state, and the budget says 4 GB"
    )
    assert found.evidence[0].startswith("budget: 1 000 000 000 parameters × (4+4+8) bytes, fully")
    assert found.evidence[1] == "rank 2: 16 GB"


@pytest.mark.parametrize("held", [(4, 4, 4, 4), (4, 4, 4.9, 4), (1, 0, 2, 4)])
def test_padding_and_less_than_the_budget_are_nothing(held: tuple[float, ...]) -> None:
    """Shards are not all of one size."""
    assert "memory-over-budget" not in holding(*held).kinds()
