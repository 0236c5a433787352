"""A client that is told only what is new holds what the hub would tell it in full."""

import random
import threading
from typing import Any

import msgspec
import pytest

from rankscope.protocol import messages as m
from rankscope.protocol import shapes
from rankscope.tui.feed.follower import Follower
from support.inprocess import Link
from support.world import World

AGES = ("phase_s", "heard_s")
CLOCK_S = 0.06
"""A phase is placed anew with each message: by less than this it is the same."""


class Watching(Link):
    """Keeps what the hub answered."""

    def __init__(self, world: World) -> None:
        super().__init__(world, threading.RLock())
        self.rows: list[int] = []

    def ask(self, view: str, **options: Any) -> Any:
        reply = super().ask(view, **options)
        if isinstance(reply.body, shapes.Status):
            self.rows = [row.rank for row in reply.body.ranks]
        return reply


def followed(follower: Follower, link: Link) -> list[shapes.RankRow]:
    status = follower.ask(link, rank=None, incidents=False, view=None).status
    assert status is not None
    return list(status.ranks)


def assert_same(held: list[shapes.RankRow], whole: list[shapes.RankRow]) -> None:
    for mine, told in zip(held, whole, strict=True):
        for field in mine.__struct_fields__:
            ours, theirs = getattr(mine, field), getattr(told, field)
            if field in AGES and told.phase == "ended":
                continue  # of that rank only its end is told
            if field in AGES and ours is not None:
                assert ours == pytest.approx(theirs, abs=CLOCK_S), (mine.rank, field)
            else:
                assert ours == theirs, (mine.rank, field)


def change(world: World, rng: random.Random) -> None:
    """Something that ranks and their nodes do."""
    rank = rng.choice(list(world.ranks))
    match rng.randrange(9):
        case 0:
            world.step(rank, loss=rng.random(), grad_norm=rng.random())
        case 1:
            world.beat(rank)
        case 2:
            world.beat(rank, phase=rng.choice([m.Phase.DATA, m.Phase.FORWARD, m.Phase.BACKWARD]))
        case 3:
            world.ranks[rank].mute = not world.ranks[rank].mute
        case 4:
            world.stop(rank)
        case 5:
            world.cont(rank)
        case 6 if rng.random() < 0.2:
            world.kill(rank)
        case _:
            world.advance(rng.choice([0.1, 0.5, 3.0]))


@pytest.mark.parametrize("seed", range(2))
def test_what_is_followed_is_what_would_be_told_in_full(seed: int) -> None:
    """Whatever ranks do, and however often it is asked for, no row is left as it was."""
    rng = random.Random(seed)
    world = World(ranks=6, per_node=2)
    link, follower = Watching(world), Follower(5.0)
    for _ in range(60):
        for _ in range(rng.randrange(4)):
            change(world, rng)
        world.tick()
        assert_same(followed(follower, link), world.status().ranks)
        if rng.random() < 0.1:  # another client, that came later or asks less often
            assert_same(followed(Follower(5.0), Watching(world)), world.status().ranks)


def test_ranks_that_only_spoke_again_are_told_in_two_numbers() -> None:
    """Their rows are not sent anew, and are known to have been heard of."""
    world = World(ranks=4)
    for _ in range(3):
        world.step()
    world.advance(1.0)
    link, follower = Watching(world), Follower(5.0)
    followed(follower, link)
    world.advance(1.0)
    held = followed(follower, link)
    assert link.rows == []
    assert max(row.heard_s or 0.0 for row in held) < 0.6
    world.step(2)
    assert_same(followed(follower, link), world.status().ranks)
    assert link.rows == [2]


def test_who_does_not_ask_for_it_is_told_in_rows() -> None:
    """As clients of earlier versions expect it."""
    world = World(ranks=2)
    world.step()
    link = Link(world, threading.RLock())
    version = link.ask("status").version
    world.advance(1.0)
    body = link.ask("status", since=version).body
    assert isinstance(body, shapes.Status)
    assert [row.rank for row in body.ranks] == [0, 1]
    assert body.heard == []
    assert msgspec.structs.asdict(body)["full"] is False
