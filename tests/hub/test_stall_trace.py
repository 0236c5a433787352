"""A stall leaves a trace in the incident log, and changes no verdict."""

from pathlib import Path

import pytest

from rankscope.hub.incidents import IncidentFile, read
from rankscope.protocol.messages import Phase
from rankscope.protocol.shapes import Finding, Incident
from support.world import World


def running(incident_file: IncidentFile | None = None) -> World:
    world = World(4, incident_file=incident_file)
    for _ in range(3):
        world.step()
    return world.advance(0.5)


def entries(world: World) -> list[Incident]:
    return world.log()


def log(world: World) -> list[tuple[str, str]]:
    return [(entry.event, entry.finding.kind) for entry in entries(world)]


def stall(world: World) -> Finding:
    """The only stall in the log."""
    (entry,) = [entry for entry in entries(world) if entry.event == "opened"]
    assert entry.finding.kind == "stalled"
    return entry.finding


def test_a_stall_is_an_incident_that_opens_and_closes(tmp_path: Path) -> None:
    """At the moment in which the run is called stalled, and when it moves again; on disk, too."""
    world = running(incident_file=IncidentFile(tmp_path / "incidents.jsonl"))
    world.advance(9.0)
    assert (world.status().state, log(world)) == ("running", [])
    world.advance(2.0)
    assert (world.status().state, log(world)) == ("stalled", [("opened", "stalled")])
    world.advance(20.0)
    world.step()
    assert world.status().state == "running"
    assert log(world) == [("opened", "stalled"), ("closed", "stalled")]
    assert [entry.event for entry in read(tmp_path / "incidents.jsonl")] == ["opened", "closed"]


def test_it_is_a_trace_and_no_verdict() -> None:
    """No cause is known: nobody is accused, and findings and health stay as they are."""
    world = running()
    world.advance(15.0)
    status, overview = world.status(), world.overview()
    assert (status.verdict, status.findings) == (None, [])
    assert overview.findings == {"info": 0, "warning": 0, "critical": 0}
    finding = stall(world)
    assert (finding.severity, finding.ranks, finding.victims) == ("info", [], [0, 1, 2, 3])
    assert finding.step == 4


def test_it_says_where_each_rank_is_since_when_and_what_to_look_at() -> None:
    """Ranks by phase, the oldest first, and the stack of the one that stopped moving first."""
    world = running()
    world.phase(2, Phase.DATA)
    world.advance(5.0)
    for rank in (0, 1, 3):
        world.phase(rank, Phase.BACKWARD)
    world.advance(12.0)
    finding = stall(world)
    assert finding.headline == "no rank moves: rank 2 in data, ranks 0, 1 and 3 in backward"
    assert finding.evidence == [
        "rank 2 has been in data for 15 s (pid 1002 on node-0)",
        "ranks 0, 1 and 3 have been in backward for 10 s (pid 1000 on node-0)",
    ]
    assert finding.next == "see where rank 2 stands: py-spy dump --pid 1002 (on node-0)"


def test_a_stall_with_a_cause_is_the_causes_incident() -> None:
    """A stopped, silent or dead rank explains why nobody moves: its finding tells it."""
    world = running()
    world.stop(1)
    world.advance(30.0)
    world.cont(1)
    world.ranks[1].mute = True
    world.advance(2.0)
    world.ranks[1].mute = False
    for _ in range(4):
        world.step()
        world.advance(1.0)
    assert log(world) == [("opened", "rank-stopped"), ("closed", "rank-stopped")]
    world.kill(2)
    world.advance(30.0)
    assert log(world)[2:] == [("opened", "rank-dead")]


def test_a_cause_that_is_found_later_takes_its_place() -> None:
    """The trace closes when a finding says why."""
    world = running()
    world.advance(15.0)
    world.stop(3)
    world.advance(1.0)
    assert log(world) == [
        ("opened", "stalled"),
        ("closed", "stalled"),
        ("opened", "rank-stopped"),
    ]


@pytest.mark.parametrize("away_s", [3.0, 60.0])
def test_a_restart_of_the_hub_leaves_one_trace(away_s: float) -> None:
    """A stall that goes on across the hub's absence is one."""
    world = running()
    world.advance(15.0)
    world.now_s += away_s
    world.tick()
    world.advance(10.0)
    assert log(world) == [("opened", "stalled")]


@pytest.mark.parametrize("code", [0, 1])
def test_the_end_of_a_stalled_run_closes_it(code: int) -> None:
    """Killed while nothing moved: the log says for how long."""
    world = running()
    world.advance(15.0)
    world.run_end(code)
    world.advance(1.0)
    assert log(world)[:2] == [("opened", "stalled"), ("closed", "stalled")]
