"""Ranks that outlive their launcher's command: that is a live run until the last of them ends."""

from pathlib import Path

import pytest

from rankscope.hub.core import Core
from rankscope.hub.incidents import Incidents
from rankscope.hub.lifetimes import Lifetimes
from rankscope.hub.recording import Recorder
from rankscope.hub.restore import restore
from rankscope.protocol import messages as m
from support.world import RUN, World

Command = dict[str, tuple[int, int | None]]

KILLED: Command = {
    "SIGKILL": (137, 9),
    "SIGSEGV": (139, 11),
    "SIGTERM": (143, 15),
    "a script's": (137, None),
}
"""The command's exit code and the signal of which it died."""
LEFT_TO_ITSELF: Command = {"exit 0": (0, None), "exit 1": (1, None), "exit 143": (143, None)}
"""It ended by itself, as a script does that leaves its training in the background."""


COMMANDS: Command = {**KILLED, **LEFT_TO_ITSELF}


def trained(recording: Path | None = None, *, sentinels: bool = True) -> World:
    recorder = None if recording is None else Recorder(recording)
    world = World(2, recorder=recorder, sentinels=sentinels)
    for _ in range(12):
        world.step()
    world.tick()
    return world


def told_over(world: World) -> bool:
    """Whether the sentinels were told that the run is over, so that they have left."""
    return any(isinstance(message, m.RunOver) for _, message in world.replies())


def reason_to_end(world: World) -> str:
    """Why its hub would end now."""
    core = world.core
    return Lifetimes().reason_to_end(
        world.now_s,
        started_s=0.0,
        run_end_s=core.over_s(),
        ranks_ended_s=core.ranks_ended_s(),
        heard_s=core.heard_s(),
        client_s=None,
    )


@pytest.mark.parametrize("sentinels", [True, False])
@pytest.mark.parametrize("how", KILLED)
def test_a_run_whose_launcher_was_killed_goes_on_with_its_ranks(how: str, sentinels: bool) -> None:
    """It has not ended for a moment, and soon it is said who is left and how they are ended."""
    world = trained(sentinels=sentinels)
    code, signal = KILLED[how]
    world.run_end(code, signal, leaves=True)
    for _ in range(6):
        world.advance(1.0, moving=True)
        assert not told_over(world)
        assert world.status().state == "running"
        assert world.overview().ended_s is None
    name = "SIGKILL" if signal is None else how
    finding = world.finding("ranks-orphaned")
    assert finding.headline == f"launcher died ({name}); 2 ranks still train"
    assert finding.severity == "warning"
    assert finding.next == "let them finish, or end them: kill 1000 1001 (on node-0)"
    world.advance(100.0, moving=True)
    assert reason_to_end(world) == ""
    assert world.status().exit_code == code


@pytest.mark.parametrize("how", LEFT_TO_ITSELF)
def test_a_command_that_ends_by_itself_may_leave_ranks_too(how: str) -> None:
    """What is on its way when a launcher ends as it should makes no run live: a rank that is there
    seconds later does."""
    world = trained()
    world.run_end(*LEFT_TO_ITSELF[how], leaves=True)
    assert world.status().state in ("finished", "failed")
    world.advance(4.5, moving=True)
    assert reason_to_end(world) == ""
    status = world.status()
    assert status.state == "running"
    assert status.verdict is not None
    assert status.verdict.headline == f"launcher ended ({how}); 2 ranks still train"


@pytest.mark.parametrize("how", COMMANDS)
def test_it_ends_as_its_last_rank_does(tmp_path: Path, how: str) -> None:
    """Finished where they finish, and not with the launcher; from its recording, too."""
    world = trained(tmp_path)
    code, signal = COMMANDS[how]
    world.run_end(code, signal, leaves=True)
    world.advance(10.0, moving=True)
    world.finish(0)
    world.advance(2.0)
    assert world.status().state == "running"
    assert "rank 1 has not" in world.status().ending
    end_s = world.now_s
    world.finish(1)
    world.advance(1.0)
    status = world.status()
    assert (status.state, status.exit_code, status.ending) == ("finished", code, "")
    assert world.overview().ended_s == pytest.approx(end_s, abs=0.3)
    assert status.verdict is not None
    told = "before ranks 0 and 1 had trained to the end, which they did"
    assert status.verdict.headline.endswith(told)
    world.replies()
    world.report("node-0")
    assert told_over(world)
    world.advance(10.0)
    assert reason_to_end(world) == "the run has ended"
    world.core.close(world.now_s)
    restored = restore(tmp_path, RUN)
    assert restored is not None
    past = world.status()
    incidents = Incidents(world.core.know.incidents.shown)
    world.now_s = restored.last_s
    world.core = Core(restored.state, incidents, now_s=world.now_s)
    assert world.status() == past


@pytest.mark.parametrize("first", [0, 1])
def test_all_who_are_there_are_named_as_soon_as_one_has_outlived_the_launcher(first: int) -> None:
    """The log keeps what it said first, and whoever reads it ends all of them, or none."""
    world = trained(sentinels=False)
    world.run_end(137, 9, leaves=True)
    world.now_s += 1.0
    world.phase(first, m.Phase.FORWARD)
    finding = world.finding("ranks-orphaned")
    assert finding.headline == "launcher died (SIGKILL); 2 ranks still train"
    assert finding.next.endswith("kill 1000 1001 (on node-0)")
    assert any("no checkpoint is saved" in line for line in finding.evidence)


def test_an_orphan_that_dies_is_the_verdict_of_a_run_that_failed() -> None:
    """Who of them died first, and how, as of any run."""
    world = trained()
    world.run_end(137, 9, leaves=True)
    world.advance(10.0, moving=True)
    world.kill(1, 11).advance(1.0)
    world.raises(0, "RuntimeError", from_peer=True).exits(0, 1).advance(2.0)
    status = world.status()
    assert (status.state, status.exit_code) == ("failed", 137)
    assert status.verdict is not None
    assert (status.verdict.kind, status.verdict.ranks) == ("rank-dead", [1])


def test_orphans_that_were_asked_to_end_were_interrupted() -> None:
    """As the finding says how they are ended."""
    world = trained()
    world.run_end(137, 9, leaves=True)
    world.advance(10.0, moving=True)
    world.kill(0, 15).kill(1, 15).advance(2.0)
    status = world.status()
    assert status.state == "failed"
    assert status.verdict is not None
    assert status.verdict.headline == "run was ended by SIGTERM after step 12"


def test_orphans_that_hang_are_a_hang() -> None:
    """And not said to train."""
    world = trained()
    world.run_end(137, 9, leaves=True)
    world.advance(60.0)
    status = world.status()
    assert status.state == "stalled"
    orphaned = next(one for one in status.findings if one.kind == "ranks-orphaned")
    assert orphaned.headline == "launcher died (SIGKILL); 2 ranks are left"


@pytest.mark.parametrize("sentinels", [True, False])
@pytest.mark.parametrize("how", KILLED)
def test_a_command_that_is_the_rank_itself_leaves_nobody(how: str, sentinels: bool) -> None:
    """It was killed, and is gone: the run has failed, at once where that is seen."""
    world = World(1, sentinels=sentinels)
    for _ in range(12):
        world.step()
    code, signal = KILLED[how]
    world.ranks[0].over = True
    world.kill(0, signal or 9)
    world.advance(0.05)
    world.run_end(code, signal)
    if sentinels:
        assert world.status().state == "failed"
    world.advance(5.0)
    status = world.status()
    assert status.state == "failed"
    assert not [one for one in status.findings if one.kind == "ranks-orphaned"]
    assert reason_to_end(world) == "the run has ended"


def test_ranks_that_end_with_a_killed_launcher_were_not_left() -> None:
    """As by a scheduler that kills all processes of a job."""
    world = trained()
    world.run_end(137, 9, leaves=True)
    world.advance(0.25)
    world.kill(0).kill(1).advance(5.0)
    status = world.status()
    assert status.state == "failed"
    assert [one.kind for one in status.findings] == ["rank-dead"]
