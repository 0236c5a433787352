"""Where a hub listens that was not told a port."""

import random

import pytest

from rankscope.hub import ports


@pytest.mark.parametrize(
    "ephemeral", ["32768\t60999\n", "49152 65535", "28000 30000", "20000 60000"]
)
def test_no_port_is_tried_that_the_kernel_gives_to_whoever_asks_for_any(ephemeral: str) -> None:
    """It would be gone when a hub that was killed comes back to it."""
    first, last = map(int, ephemeral.split())
    for seed in range(50):
        tried = ports.candidates(ephemeral, random.Random(seed))
        assert len(set(tried)) == ports.TRIES
        assert all(ports.FIRST <= port < ports.END for port in tried)
        assert not any(first <= port <= last for port in tried)


@pytest.mark.parametrize("ephemeral", ["1024 65535", "15000 28999", "", "a b", "1 2 3"])
def test_where_the_kernel_gives_away_all_it_is_asked_for_one(ephemeral: str) -> None:
    """Nothing is tried then."""
    assert ports.candidates(ephemeral, random.Random(1)) == []


def test_a_few_that_are_left_are_tried() -> None:
    """Above the kernel's own."""
    assert sorted(ports.candidates("1024 28990", random.Random(1))) == list(range(28_991, 29_000))
