"""Who is in which process group, and how far: the table that all verdicts about hangs rest on."""

import random

from rankscope.hub.diagnose.hang.table import OWN, GroupRows, table
from rankscope.protocol import messages as m
from support.world import World

Members = dict[str, tuple[int, ...]]


def world_of(ranks: int, told: dict[int, Members], entered: dict[int, dict[str, int]]) -> World:
    """Ranks that list their groups and then say how far they are in some of them."""
    world = World(ranks=ranks)
    for rank, groups in told.items():
        listed = tuple(
            m.Group(name, f"the {name}", "gloo", len(members) or ranks, members)
            for name, members in groups.items()
        )
        world.from_rank(rank, m.Groups, groups=listed)
    for rank, places in entered.items():
        statuses = tuple(m.CollectiveStatus(name, seq, -1, seq - 1) for name, seq in places.items())
        world.beat(rank, collectives=statuses)
    return world


def rows(world: World) -> dict[tuple[str, str], GroupRows]:
    return {(group.name, group.description): group for group in table(world.state).all()}


def test_a_member_that_told_nothing_is_in_the_group_all_the_same() -> None:
    """It has entered nothing yet; a group of everyone lists nobody and has who speaks of it."""
    groups: Members = {"0": (), "7": (1, 2, 3)}
    world = world_of(4, {1: groups, 2: groups}, {1: {"0": 5, "7": 2}, 2: {"0": 6}})
    found = rows(world)
    assert found["0", "the 0"].ranks.tolist() == [1, 2]
    assert found["0", "the 0"].entered.tolist() == [5, 6]
    seven = found["7", "the 7"]
    assert (seven.ranks.tolist(), seven.entered.tolist()) == ([1, 2, 3], [2, 0, 0])


def test_groups_of_one_name_with_other_members_are_two() -> None:
    """Names are numbered by each process: a pair of pairs is no group of four."""
    told: dict[int, Members] = {rank: {"1": (0, 1) if rank < 2 else (2, 3)} for rank in range(4)}
    world = world_of(4, told, {rank: {"1": 3 + rank} for rank in range(4)})
    both = table(world.state).all()
    assert [(g.name, g.ranks.tolist(), g.entered.tolist()) for g in both] == [
        ("1", [0, 1], [3, 4]),
        ("1", [2, 3], [5, 6]),
    ]


def test_groups_of_one_and_groups_of_ours_are_left_out() -> None:
    """Nobody waits in them for anybody."""
    groups: Members = {f"{OWN}/control": (0, 1), "own": (0,), "0": (0, 1)}
    places = dict.fromkeys(groups, 4)
    others = {name: own for name, own in groups.items() if 1 in own}
    world = world_of(2, {0: groups, 1: others}, {0: places, 1: dict.fromkeys(others, 4)})
    assert set(rows(world)) == {("0", "the 0")}


def test_the_table_says_of_each_rank_what_it_said() -> None:
    """Whoever lists a group or not, in any order: no rank's place becomes another's."""
    chance = random.Random(7)
    for _ in range(30):
        size = chance.randrange(2, 9)
        members = {
            str(name): tuple(sorted(chance.sample(range(size), chance.randrange(1, size + 1))))
            for name in range(4)
        }
        lists = [rank for rank in range(size) if chance.random() < 0.8]
        told = {r: {n: own for n, own in members.items() if r in own} for r in lists}
        entered = {
            rank: {n: chance.randrange(1, 99) for n, own in members.items() if rank in own}
            for rank in chance.sample(range(size), size)
            if chance.random() < 0.8
        }
        world = world_of(size, told, entered)
        seen: set[tuple[int, str]] = set()
        for group in table(world.state).all():
            assert group.ranks.tolist() == sorted(set(group.ranks.tolist()))
            for rank in group.ranks.tolist():
                place = group.member(rank)
                assert place is not None
                if group.name in entered.get(rank, {}) and (rank in lists) == bool(
                    group.description
                ):
                    assert place.entered == entered[rank][group.name]
                    seen.add((rank, group.name))
        for name, own in members.items():
            speakers = [r for r in own if r in entered and r in lists]
            if len(own) > 1 and speakers:
                assert seen.issuperset((rank, name) for rank in speakers)
