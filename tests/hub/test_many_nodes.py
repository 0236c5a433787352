"""The machines of a large run, told together where a client asks for that."""

import pytest

from support.world import World


@pytest.fixture
def world() -> World:
    return World(6, per_node=2).step()


def test_few_nodes_are_told_one_by_one(world: World) -> None:
    """As many as were asked for, and without the argument all."""
    for args in ({}, {"nodes": 3}):
        overview = world.view("overview", **args)
        assert len(overview.nodes) == 3
        assert overview.nodes_in_short is None


def test_more_nodes_than_asked_for_are_told_in_short(world: World) -> None:
    """How many, and which of them have no sentinel; the ranks' own rows name their machines."""
    world.silent_hosts.add("node-1")
    world.advance(30.0)
    overview = world.view("overview", nodes=2)
    assert overview.nodes == []
    short = overview.nodes_in_short
    assert short is not None
    assert short.count == 3
    assert (short.without_sentinel, short.hosts) == (1, ["node-1"])
    assert {row.host for row in world.view("status").ranks} == {"node-0", "node-1", "node-2"}
