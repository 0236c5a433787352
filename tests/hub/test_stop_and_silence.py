"""Stopped ranks, silent ranks and silent nodes."""

import pytest

from rankscope.hub import gone, liveness, stall
from rankscope.hub.state.silence import LOST_S
from rankscope.protocol.messages import Phase
from rankscope.protocol.shapes import Finding
from support.world import World


def running(ranks: int = 4, per_node: int | None = None, *, sentinels: bool = True) -> World:
    world = World(ranks, per_node, sentinels=sentinels)
    for _ in range(3):
        world.step()
    world.advance(0.5)
    return world


def test_a_stopped_rank_is_named_at_once_and_its_victims_soon() -> None:
    """SIGSTOP is seen by the sentinel; the others wait for the stopped rank."""
    world = running()
    world.stop(1)
    finding = world.finding("rank-stopped")
    assert (finding.ranks, finding.severity, finding.step) == ([1], "critical", 4)
    assert finding.next.startswith("let it go on: kill -CONT 1001")
    world.advance(3.0)
    assert world.finding("rank-stopped").victims == [0, 2, 3]
    assert world.finding("rank-stopped").since_s == pytest.approx(3.0, abs=0.01)


def test_a_stopped_rank_is_not_also_lost() -> None:
    """Its silence is explained, however long it lasts."""
    world = running()
    world.stop(1)
    world.advance(30.0)
    assert world.kinds() == ["rank-stopped"]


def test_going_on_clears_it() -> None:
    """SIGCONT closes the finding by itself; the incident log keeps both lines."""
    world = running()
    world.stop(1)
    world.advance(3.0)
    world.cont(1)
    assert world.findings() == []
    world.advance(1.0)
    assert [entry.event for entry in world.view("incidents").incidents] == ["opened", "closed"]
    assert world.status().ranks[1].link == "up"


def test_two_stopped_ranks_are_one_finding() -> None:
    """Ranks that are stopped together are told together."""
    world = running()
    world.stop(1)
    world.advance(1.0)
    world.stop(3)
    assert world.finding("rank-stopped").ranks == [1, 3]


def test_a_rank_killed_while_stopped_is_dead_and_not_stopped() -> None:
    """The graver evidence replaces the milder."""
    world = running()
    world.stop(1)
    world.advance(1.0)
    world.kill(1)
    assert world.finding("rank-dead").ranks == [1]


def test_a_silent_rank_whose_process_lives_is_a_warning() -> None:
    """The sentinel knows better: alive, not answering, and whether it uses the CPU."""
    world = running()
    world.ranks[2].mute = True
    world.advance(8.0)
    finding = world.finding("link-lost")
    assert (finding.severity, finding.ranks) == ("warning", [2])
    assert "used no CPU time over the last 5 to 10 s" in finding.evidence[0]
    for _ in range(4):
        world.ranks[2].cpu_s += 1.0
        world.advance(1.0)
    assert "used CPU time" in world.finding("link-lost").evidence[0]
    world.ranks[2].mute = False
    world.advance(0.5)
    assert world.findings() == []


@pytest.mark.parametrize("starved", [[2], [1, 2]])
def test_a_rank_that_is_ready_to_run_and_says_nothing_is_a_notice(starved: list[int]) -> None:
    """It computes, or other work has its core; after half a minute that is a warning all the same,
    and so it is where another rank that does not answer waits for something."""
    world = running()
    for rank in starved:
        world.ranks[rank].mute = True
    world.ranks[2].ready_since_s = world.now_s
    world.advance(8.0)
    finding = world.finding("link-lost")
    assert finding.severity == ("info" if starved == [2] else "warning")
    assert "running or ready to run all the time" in finding.evidence[-1]
    world.advance(25.0)
    assert world.finding("link-lost").severity == "warning"


def test_a_whole_node_is_one_finding() -> None:
    """When a node's ranks and its sentinel are silent, the node is named, once."""
    world = running(8, per_node=4)
    world.silent_hosts.add("node-1")
    for rank in range(4, 8):
        world.ranks[rank].mute = True
    world.advance(10.0)
    finding = world.finding("link-lost")
    assert (finding.severity, finding.ranks) == ("critical", [4, 5, 6, 7])
    assert finding.headline == "node node-1 does not answer: ranks 4–7"
    assert finding.victims == [0, 1, 2, 3]


def test_many_nodes_at_once_are_one_finding() -> None:
    """A network that went away is one thing that is wrong, not one for each node."""
    world = running(16, per_node=2)
    for rank in range(4, 16):
        world.ranks[rank].mute = True
        world.silent_hosts.add(world.ranks[rank].host)
    world.advance(10.0)
    finding = world.finding("link-lost")
    assert finding.ranks == list(range(4, 16))
    assert finding.headline == "6 nodes do not answer: ranks 4–15"


def test_silent_ranks_on_many_nodes_without_sentinels_are_one_finding() -> None:
    """One thing is wrong, however many nodes it shows on."""
    world = running(12, per_node=2, sentinels=False)
    for rank in range(12):
        world.ranks[rank].mute = rank % 2 == 1
    world.advance(10.0)
    finding = world.finding("link-lost")
    assert finding.ranks == [1, 3, 5, 7, 9, 11]
    assert finding.headline.startswith("ranks 1, 3, 5, 7, 9 and 11 on 6 nodes do not answer")


def test_a_silent_rank_without_a_sentinel_is_critical() -> None:
    """Nobody can say that it lives."""
    world = running(sentinels=False)
    world.ranks[2].mute = True
    world.advance(10.0)
    finding = world.finding("link-lost")
    assert (finding.severity, finding.ranks) == ("critical", [2])
    assert "no sentinel" in finding.evidence[0]


def test_a_sentinel_alone_in_silence_accuses_no_rank() -> None:
    """Ranks that speak for themselves are fine without a sentinel."""
    world = running()
    world.silent_hosts.add("node-0")
    world.advance(20.0, moving=True)
    assert world.findings() == []
    assert world.overview().nodes[0].sentinel == "silent"


@pytest.mark.parametrize(
    ("age_s", "link", "lost"),
    [
        (0.0, "up", False),
        (2.0, "up", False),
        (2.001, "silent", False),
        (5.0, "silent", False),
        (5.001, "silent", True),
        (60.0, "silent", True),
        (60.001, "down", True),
    ],
)
def test_the_link_follows_the_age_of_the_last_word(age_s: float, link: str, lost: bool) -> None:
    """Up to 2 s up, to 60 s silent, then down; a finding beyond 5 s."""
    world = running()
    # Exact in binary, so that the boundaries are where they are.
    heard_s = 2.0**20
    world.state.ranks.heard_s[1] = heard_s
    world.state.ranks.heard_s[[0, 2, 3]] = heard_s + age_s
    codes = liveness.links(world.state, heard_s + age_s)
    assert liveness.LINKS[codes[1]] == link
    silent = liveness.silence_s(world.state, heard_s + age_s)
    assert bool(silent[1] > LOST_S) == lost


def test_a_rank_never_heard_of_is_down_and_no_finding() -> None:
    """Attached on some ranks only: the others are shown, and not accused."""
    world = World(4, attached=[0, 2])
    for _ in range(3):
        world.step()
    world.advance(20.0, moving=True)
    assert world.findings() == []
    rows = world.status().ranks
    assert [row.link for row in rows] == ["up", "down", "up", "down"]
    assert [row.phase for row in rows][1] == "starting"
    assert world.status().step == 3


def test_a_hub_that_was_away_accuses_nobody_of_its_own_silence() -> None:
    """Time in which the hub was not there is not counted as the ranks' silence."""
    world = running()
    world.now_s += 60.0
    world.tick()
    assert world.findings() == []
    assert {row.link for row in world.status().ranks} == {"up"}
    assert world.status().state == "running"
    world.advance(10.0, moving=True)
    assert world.findings() == []


def test_a_rank_that_stays_silent_after_the_hub_was_away_is_lost() -> None:
    """The grace is one patience long, no longer."""
    world = running()
    world.now_s += 60.0
    world.tick()
    world.ranks[3].mute = True
    world.advance(8.0, moving=True)
    assert world.finding("link-lost").ranks == [3]


def test_a_lost_link_stays_open_across_the_hubs_absence() -> None:
    """A restart of the hub neither closes nor opens it again."""
    world = running()
    world.ranks[3].mute = True
    world.advance(10.0, moving=True)
    world.now_s += 30.0
    world.tick()
    world.advance(10.0, moving=True)
    assert [entry.event for entry in world.log()] == ["opened"]


def test_the_run_is_stalled_when_no_rank_moves_for_long() -> None:
    """Ten seconds, or five of the longest step, without any change of phase."""
    world = running()
    world.advance(9.0)
    assert world.status().state == "running"
    world.advance(3.0)
    status = world.status()
    assert status.state == "stalled"
    assert status.stalled_s == pytest.approx(12.5, abs=0.3)
    world.step()
    assert world.status().state == "running"
    assert world.status().stalled_s is None


def test_patience_grows_with_the_longest_step() -> None:
    """A run with steps of 10 s is not stalled after 40."""
    world = World(2)
    world.step(step_s=100.0)  # warm-up does not count
    world.step(step_s=10.0)
    world.step(step_s=2.0)
    assert stall.patience_s(world.state) == pytest.approx(50.0)
    world.advance(45.0)
    assert world.status().state == "running"
    world.advance(10.0)
    assert world.status().state == "stalled"


def test_nothing_is_stalled_before_the_first_step() -> None:
    """Compilation and cold caches take as long as they take."""
    world = World(2)
    world.advance(200.0)
    assert world.status().state == "starting"
    assert world.findings() == []


def test_an_evaluation_without_steps_is_movement() -> None:
    """Forward passes alone keep a run from being stalled."""
    world = running()
    for _ in range(60):
        world.phase(0, Phase.FORWARD)
        world.advance(1.0)
    assert world.status().state == "running"


def test_a_stall_that_began_before_the_hub_came_back_keeps_its_age() -> None:
    """Once all ranks have spoken again, the stall is as old as it is."""
    world = running()
    world.advance(15.0)
    assert world.status().state == "stalled"
    world.now_s += 5.0
    world.tick()
    world.advance(1.0)
    assert world.status().stalled_s == pytest.approx(21.5, abs=0.3)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("launched", [True, False])
def test_who_is_ended_while_another_is_stopped_is_not_to_blame(ranks: int, launched: bool) -> None:
    """The launcher was told to end the run: a stopped rank hears nothing of it until it is killed.
    That it is stopped is the verdict all the while, and why the run was ended in the end."""
    world = running(ranks)
    world.core.launcher_lives = lambda: launched
    world.stop(1)
    world.advance(5.0)
    for rank in range(ranks):
        if rank != 1:
            world.kill(rank, signal=15)
    for _ in range(15):
        world.advance(2.0)
        verdict = world.status().verdict
        assert verdict is not None
        assert (verdict.kind, verdict.ranks) == ("rank-stopped", [1])
        assert "kill -CONT 1001" in verdict.next
    world.kill(1)
    world.advance(0.5)
    if launched:
        assert {one.finding.kind for one in world.log()} <= {"rank-stopped", "run-interrupted"}
        assert not [one for one in world.log() if one.finding.headline.startswith("rank 0 died")]
    world.core.launcher_lives = lambda: False
    world.run_end(143, None, 15)
    world.advance(1.0)
    verdict = world.status().verdict
    assert verdict is not None
    assert verdict.headline.startswith("ended from outside by SIGTERM while it hung: rank 1 is")


def test_a_rank_that_was_ended_alone_beside_a_stopped_one_is_named_in_the_end() -> None:
    """Nobody asked the launcher: it ended what was left because one was gone."""
    world = running(2)
    world.stop(1)
    world.advance(2.0)
    world.kill(0, signal=15)
    world.advance(30.0)
    world.kill(1)
    world.run_end(1)
    world.advance(1.0)
    assert any(one.kind == "rank-dead" and one.ranks == [0] for one in world.findings())


def test_nothing_is_to_be_done_with_a_process_that_is_gone() -> None:
    """What a hang says next is of one that lives, while there is one."""
    world = running(4)
    world.stop(1).stop(3)
    world.advance(2.0)
    for rank in (0, 2):
        world.kill(rank, signal=15)
    world.advance(10.0)
    world.kill(1)
    world.advance(1.0)
    verdict = world.status().verdict
    assert verdict is not None
    assert "1001" not in verdict.next
    assert "kill -CONT 1003" in verdict.next
    world.kill(3)
    world.run_end(143, None, 15)
    world.advance(1.0)
    verdict = world.status().verdict
    assert verdict is not None
    assert verdict.kind == "rank-stopped"
    assert "kill" not in verdict.next
    assert "who stopped it" in verdict.next


@pytest.mark.parametrize(
    "how", ["py-spy dump --native --pid 1001 (on node-0)", "py-spy dump --pid 1001"]
)
def test_a_process_that_is_gone_is_not_to_be_read(how: str) -> None:
    """Its stacks are kept."""
    world = running(2)
    found = Finding("gil-held", "critical", [1], [0], 4, 1.0, "", [], f"see its stack: {how}")
    assert gone.afterwards(world.state, [found], world.now_s) == [found]
    world.kill(1)
    (after,) = gone.afterwards(world.state, [found], world.now_s)
    assert after.next == "see where it was: rankscope stacks --rank 1"


def test_where_a_stopped_rank_stands_is_what_it_said_last() -> None:
    """It may have gone on since, unheard: how far nobody knows."""
    world = running(2)
    world.phase(1, Phase.FORWARD)
    world.ranks[1].mute = True
    world.step(1)
    world.stop(1)
    assert world.finding("rank-stopped").headline == (
        "rank 1 is stopped, last heard in forward of step 4"
    )
