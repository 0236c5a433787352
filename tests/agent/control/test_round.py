"""Ranks that agree on the boundary at which they follow a request, each in a thread of its own."""

import random
import threading
import time

import pytest
from torch._C._distributed_c10d import HashStore

from rankscope.agent.control.round import GIVEN_UP, Round


class Rank(threading.Thread):
    """Passes boundaries until it has acted, at a pace of its own, as training would."""

    def __init__(self, rank: int, world_size: int, store: object, start: int, hears: bool) -> None:
        super().__init__(daemon=True)
        self.completed = start
        self.acted: list[int] = []
        self.heard = threading.Event()
        self.over = threading.Event()
        self._pace = random.Random(rank)
        self.round = Round(
            5, rank, world_size, lambda: store, "test", lambda: self.completed,
            time.monotonic() + (20.0 if hears else 0.5),
        )  # fmt: skip

    def run(self) -> None:
        while not self.over.wait(self._pace.uniform(0.0, 0.004)):
            self.completed += 1
            agreed = self.round.boundary()
            if agreed is not None and self.completed >= agreed:
                self.acted.append(agreed if agreed in (GIVEN_UP, self.completed) else -2)
                return


@pytest.mark.parametrize("seed", range(4))
def test_all_ranks_act_at_the_same_boundary_and_once(seed: int) -> None:
    """However far apart they are, and whenever each hears of the request."""
    spread = random.Random(seed)
    store = HashStore()
    ranks = [Rank(n, 4, store, start=spread.randrange(6), hears=True) for n in range(4)]
    for rank in ranks:
        rank.start()
    for rank in spread.sample(ranks, 4):
        rank.round.start()
        time.sleep(spread.uniform(0, 0.05))
    for rank in ranks:
        rank.join(30)
        assert not rank.is_alive()
    acted = {tuple(rank.acted) for rank in ranks}
    assert len(acted) == 1, acted
    assert acted != {(GIVEN_UP,)}
    assert {rank.completed for rank in ranks} == set(acted.pop())


def test_while_a_rank_has_not_heard_of_it_no_other_is_held_up() -> None:
    """It is given up in words, and training has gone on all the while."""
    store = HashStore()
    ranks = [Rank(n, 3, store, start=0, hears=False) for n in range(3)]
    for rank in ranks:
        rank.start()
    for rank in ranks[:2]:
        rank.round.start()
    for rank in ranks[:2]:
        rank.join(30)
        assert rank.acted == [GIVEN_UP]
        assert "rank 2 did not hear of it" in rank.round.text
        assert not rank.round.holding
    ranks[2].over.set()
    ranks[2].join(10)
    assert ranks[2].acted == []


def test_a_store_that_is_gone_costs_the_request_alone() -> None:
    """Nothing is raised."""

    def gone() -> object:
        raise ConnectionError("the store is gone")

    alone = Round(1, 0, 2, gone, "test", lambda: 0, time.monotonic() + 5)
    alone.start()
    alone.join(10)
    assert alone.boundary() == GIVEN_UP
    assert alone.text == "given up: torch's store: ConnectionError"
