"""Ranks of several nodes agree on a life of theirs, over a store that outlives them."""

import itertools
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from torch._C._distributed_c10d import TCPStore  # torch.distributed has it, but not exported

from rankscope.trainers import lives

RANKS = 3
ORDERS = list(itertools.permutations(range(RANKS)))


@pytest.fixture
def address() -> "tuple[str, int, TCPStore]":
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return "127.0.0.1", server.port, server


def joined(address: "tuple[str, int, TCPStore]", rank: int) -> str:
    """What the rank goes by; each has a connection of its own, as processes have."""
    store = TCPStore(*address[:2], is_master=False, wait_for_workers=False)
    return lives.agree(store, rank, RANKS, 60.0)


@pytest.mark.parametrize("order", ORDERS)
def test_each_life_has_one_name_whoever_comes_first(
    order: tuple[int, ...], address: "tuple[str, int, TCPStore]"
) -> None:
    """Also where those before have left a name, answers and all in the store."""
    names = []
    with ThreadPoolExecutor(RANKS) as pool:
        for _ in range(3):
            asked: list[Future[str]] = []
            for rank in order:
                asked.append(pool.submit(joined, address, rank))
                if len(asked) < RANKS:  # nobody goes on before all have come
                    assert not any(one.done() for one in asked)
            (name,) = {one.result() for one in asked}
            names.append(name)
    assert len(set(names)) == 3


def test_a_life_that_ended_before_it_began_is_in_nobodys_way(
    address: "tuple[str, int, TCPStore]",
) -> None:
    """Its rank 0 left a name, one rank had answered, the third never came."""
    store = address[2]
    with pytest.raises(TimeoutError):
        lives.agree(store, 0, RANKS, 0.1)
    with pytest.raises(TimeoutError):
        lives.agree(store, 1, RANKS, 0.1)
    with ThreadPoolExecutor(RANKS) as pool:
        names = list(pool.map(lambda rank: joined(address, rank), (2, 1, 0)))
    assert len(set(names)) == 1


def test_ranks_that_do_not_come_are_waited_for_no_longer_than_told(
    address: "tuple[str, int, TCPStore]",
) -> None:
    """In words."""
    with pytest.raises(TimeoutError, match="not all ranks came within 0 s"):
        lives.agree(address[2], 0, RANKS, 0.05)
