"""What the hub asks of ranks and sentinels, and how often."""

import itertools

from rankscope.hub.inquiries import EVERY_S, MAX_AT_ONCE, MAX_EVERY_S, Inquiries
from rankscope.protocol import messages as m
from support.world import World


def asked(inquiries: Inquiries, seconds: float, rank: int = 3) -> list[float]:
    """When ``rank`` is asked while its stacks are wanted four times a second."""
    times = []
    for tick in range(int(seconds * 4)):
        inquiries.want(rank, "stacks")
        if inquiries.due(tick / 4):
            times.append(tick / 4)
    return times


def test_the_same_thing_is_asked_once_a_second_at_most_and_ever_less_often() -> None:
    """A rank is never asked sooner than after a second; the pauses grow up to ten seconds."""
    times = asked(Inquiries(), 60.0)
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert times[0] == 0.0
    assert pauses == sorted(pauses)
    assert pauses[0] >= EVERY_S
    assert pauses[-1] <= MAX_EVERY_S + 0.25


def test_a_person_who_asks_need_not_wait_for_the_longer_pauses() -> None:
    """What is asked for by hand goes out after a second, however long it was wanted before."""
    inquiries = Inquiries()
    last_s = asked(inquiries, 60.0)[-1]
    inquiries.want(3, "stacks", now=True)
    assert inquiries.due(last_s + 0.5) == []
    inquiries.want(3, "stacks", now=True)
    assert inquiries.due(last_s + 1.0) == [(3, ("stacks",))]


def test_a_large_world_is_asked_in_parts_those_wanted_first() -> None:
    """At most a bounded number of ranks is asked in one moment; the next ones follow."""
    inquiries = Inquiries()
    inquiries.want_all(range(16_384), "stacks", "operations")
    first = inquiries.due(0.0)
    assert [rank for rank, _ in first] == list(range(MAX_AT_ONCE))
    assert first[0] == (0, ("stacks", "operations"))
    inquiries.want_all(range(16_384), "stacks", "operations")
    assert next(rank for rank, _ in inquiries.due(0.25)) == MAX_AT_ONCE


def test_what_is_wanted_reaches_whoever_speaks_for_the_rank() -> None:
    """An agent is asked on its own connection, its node's sentinel on that of the sentinel."""
    world = World(ranks=4, per_node=2)
    world.step()
    world.replies()
    world.state.inquiries.want(2, "stacks", "foreign_stacks")
    world.tick()
    assert world.replies() == [
        (b"rank 2", m.Inquire(2, ("stacks",))),
        (b"node-1", m.Inquire(2, ("foreign_stacks",))),
    ]
    world.state.inquiries.want(2, "stacks")
    world.tick()
    assert world.replies() == []
