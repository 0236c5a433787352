"""Silence that is explained: whoever could not speak, or was not listened to, is not accused."""

from collections.abc import Callable

import pytest

from rankscope.hub.state import RunState
from support.world import World


def running(ranks: int = 4, per_node: int | None = None, *, sentinels: bool = True) -> World:
    world = World(ranks, per_node, sentinels=sentinels)
    for _ in range(3):
        world.step()
    world.advance(0.5)
    return world


def opened(world: World) -> list[str]:
    """The kinds of all findings there ever were but plain stalls."""
    entries = world.log()
    kinds = [entry.finding.kind for entry in entries if entry.event == "opened"]
    return [kind for kind in kinds if kind != "stalled"]


def the_process_is_stopped_and_goes_on(world: World, away_s: float, back_after_s: float) -> None:
    world.stop(1)
    world.advance(away_s)
    world.cont(1)
    world.ranks[1].mute = True  # the news of SIGCONT is quicker than the rank's own word
    world.advance(back_after_s)
    world.ranks[1].mute = False


def all_processes_are_stopped_and_go_on(world: World, away_s: float, back_after_s: float) -> None:
    for rank in world.ranks:
        world.stop(rank)
    world.advance(away_s)
    for rank in world.ranks:
        world.cont(rank)
        world.ranks[rank].mute = True
    world.advance(back_after_s)
    for sim in world.ranks.values():
        sim.mute = False


def the_hub_stands_still(world: World, away_s: float, back_after_s: float) -> None:
    world.now_s += away_s
    world.tick()
    for sim in world.ranks.values():
        sim.mute = True
    world.silent_hosts = set(world.hosts)
    world.advance(back_after_s)
    for sim in world.ranks.values():
        sim.mute = False
    world.silent_hosts = set()


def the_hub_stands_still_twice(world: World, away_s: float, back_after_s: float) -> None:
    """Before anybody has come back to it, it is gone again."""
    world.now_s += away_s
    world.tick()
    world.now_s += 0.25
    world.tick()
    the_hub_stands_still(world, 3.0, back_after_s)


EXPLAINED: dict[str, tuple[Callable[[World, float, float], None], list[str]]] = {
    "one rank stopped": (the_process_is_stopped_and_goes_on, ["rank-stopped"]),
    "all ranks stopped": (all_processes_are_stopped_and_go_on, ["rank-stopped"]),
    "the hub was away": (the_hub_stands_still, []),
    "the hub was away twice": (the_hub_stands_still_twice, []),
}


@pytest.mark.parametrize("away_s", [4.5, 30.0])
@pytest.mark.parametrize("back_after_s", [0.25, 4.5])
@pytest.mark.parametrize("how", EXPLAINED)
def test_a_silence_with_a_reason_is_nobodys_fault(
    how: str, away_s: float, back_after_s: float
) -> None:
    """Neither a process that was stopped nor a hub that was away makes a link lost, also when
    the first word takes a while to come."""
    play, kinds = EXPLAINED[how]
    world = running(4, 2)
    play(world, away_s, back_after_s)
    world.advance(6.0)
    assert world.findings() == []
    assert opened(world) == kinds


def test_a_node_that_was_cut_off_is_one_finding_until_it_is_back() -> None:
    """Its sentinel is often heard first; the ranks have their time to follow."""
    world = running(8, per_node=4)
    for rank in range(4, 8):
        world.ranks[rank].mute = True
    world.silent_hosts.add("node-1")
    world.advance(20.0, moving=True)
    assert world.finding("link-lost").ranks == [4, 5, 6, 7]
    world.silent_hosts.clear()
    world.advance(2.0, moving=True)
    assert world.findings() == []
    for rank in range(4, 8):
        world.ranks[rank].mute = False
        world.advance(0.5, moving=True)
    world.advance(6.0, moving=True)
    assert opened(world) == ["link-lost"]


def test_a_rank_that_was_lost_before_its_sentinel_was_stays_lost() -> None:
    """A sentinel that is restarted excuses nobody who had fallen silent before."""
    world = running()
    world.ranks[2].mute = True
    world.advance(8.0, moving=True)
    world.silent_hosts.add("node-0")
    world.advance(8.0, moving=True)
    world.silent_hosts.clear()
    world.advance(3.0, moving=True)
    assert world.finding("link-lost").ranks == [2]
    assert opened(world) == ["link-lost"]


@pytest.mark.parametrize("how", EXPLAINED)
def test_who_does_not_come_back_is_lost_after_one_patience(how: str) -> None:
    """The reason counts once: a rank that stays silent is named, for as long as it is to blame."""
    play, _ = EXPLAINED[how]
    world = running(4, 2)
    play(world, 30.0, 0.25)
    world.ranks[1].mute = True
    world.advance(6.0, moving=True)
    finding = world.finding("link-lost")
    assert finding.ranks == [1]
    assert finding.since_s < 8.0


def test_a_restarted_hub_gives_everybody_their_time() -> None:
    """However short it was away: connections come back one by one."""
    world = running(4, 2)
    for sim in world.ranks.values():
        sim.mute = True
    world.silent_hosts = set(world.hosts)
    world.advance(1.0)
    world.now_s += 1.5
    world.state.hub_was_away(world.now_s)
    world.advance(4.75)
    assert world.findings() == []
    assert {row.link for row in world.status().ranks} == {"silent"}


def test_ticks_that_come_late_are_no_absence() -> None:
    """A busy hub that diagnoses once in two seconds goes on counting."""
    state = RunState("run-1")
    for number in range(10):
        state.tick(1000.0 + 1.9 * number)
    assert state.away_until_s == -float("inf")


@pytest.mark.parametrize(
    ("share", "word"),
    [(0.0, "used no CPU time"), (0.004, "used no CPU time"), (1.0, "used CPU time")],
)
def test_what_is_said_of_cpu_time_does_not_change_from_second_to_second(
    share: float, word: str
) -> None:
    """A thread in the background that wakes now and then is not a rank at work."""
    world = running()
    world.ranks[2].mute = True
    said = set()
    for second in range(40):
        # Read in ticks of 10 ms: a small share moves in steps.
        ticks = int(share * 100 * (second + 1)) - int(share * 100 * second)
        world.ranks[2].cpu_s += ticks / 100
        world.advance(1.0, moving=True)
        if "link-lost" in world.kinds():
            (text,) = world.finding("link-lost").evidence
            said.add(text.partition("together ")[2].partition(" over")[0])
    assert said == {word}
    assert opened(world) == ["link-lost"]


@pytest.mark.parametrize("busy", [True, False])
def test_a_rank_that_begins_or_ceases_to_compute_is_told_so(busy: bool) -> None:
    """What is said follows within a few seconds, once, in the same finding."""
    world = running()
    world.ranks[2].mute = True
    said: list[str] = []
    for second in range(40):
        world.ranks[2].cpu_s += float((second >= 20) == busy)
        world.advance(1.0, moving=True)
        if "link-lost" in world.kinds():
            (text,) = world.finding("link-lost").evidence
            word = text.partition("together ")[2].partition(" over")[0]
            if said[-1:] != [word]:
                said.append(word)
    words = ["used no CPU time", "used CPU time"]
    assert said == (words if busy else words[::-1])
    assert opened(world) == ["link-lost"]
