"""Time in which nobody looked is not time without a finding."""

import pytest

from rankscope.hub import snapshot
from rankscope.hub.core import Core
from rankscope.hub.incidents import Incidents
from support.world import World


def healthy(world: World, steps: int) -> None:
    for _ in range(steps):
        world.step(step_s=0.5)
        world.tick()


@pytest.mark.parametrize("blind_s", [3.0, 30.0, 3600.0])
def test_a_blind_gap_is_no_healthy_time(blind_s: float) -> None:
    """Of a hub that was stopped, however long; what was watched before and after counts."""
    world = World(ranks=2)
    healthy(world, 20)
    before_s = world.overview().healthy_s
    assert before_s is not None
    world.now_s += blind_s
    world.tick()
    healthy(world, 4)
    after_s = world.overview().healthy_s
    assert after_s == pytest.approx(before_s + 2.0, abs=0.6)


def test_a_gap_before_the_last_trouble_is_not_taken_off_twice() -> None:
    """Only what was blind since then is taken off."""
    world = World(ranks=2)
    healthy(world, 4)
    world.now_s += 30.0
    world.tick()
    healthy(world, 4)
    world.stop(1)
    world.advance(8.0)
    assert world.overview().healthy_s is None
    world.cont(1)
    healthy(world, 8)
    assert world.overview().healthy_s == pytest.approx(4.0, abs=1.5)


@pytest.mark.parametrize("blind_s", [6.0, 30.0, 3600.0])
def test_a_blind_gap_stands_in_the_incident_log(blind_s: float) -> None:
    """From when to when, once for each gap, however often the hub looks afterwards; a hub that
    had no turn for a moment is not worth it."""
    world = World(ranks=2)
    world.now_s += 3.0
    for gaps in (1, 2):
        healthy(world, 8)
        from_s = world.core.state.last_tick_s
        world.now_s += blind_s
        healthy(world, 8)
        log = [one for one in world.core.know.incidents.shown if one.finding.kind == "hub-away"]
        assert [one.event for one in log] == ["opened", "closed"] * gaps
        assert log[-2].at_s == from_s
        assert log[-1].at_s - log[-2].at_s >= blind_s
        assert log[-1].id == log[-2].id
        assert "no hub looked from " in log[-1].finding.headline
    assert world.overview().healthy_s is not None


def test_a_hub_that_was_started_again_logs_what_its_predecessor_has_not_seen() -> None:
    """And not again what stands in the log already."""
    world = World(ranks=2)
    healthy(world, 8)
    state = snapshot.load(snapshot.dump(world.core.state))
    log = Incidents(world.core.know.incidents.shown)
    for restart in (1, 2):
        world.now_s += 0.5  # it came back at once
        state.hub_was_away(world.now_s)
        for _ in range(2):  # the second one as if it had read a recording that tells of the first
            core = Core(state, log, now_s=world.now_s)
            core.restarted()
            core.tick(world.now_s)
        away = [one for one in log.shown if one.finding.kind == "hub-away"]
        assert len(away) == 2 * restart
