"""A run that has ended: it has one end, and nothing of it grows older."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rankscope.hub.core import Core
from rankscope.hub.incidents import Incidents
from rankscope.hub.recording import Recorder
from rankscope.hub.restore import restore
from rankscope.protocol import messages as m
from rankscope.protocol import rundir
from rankscope.tui.runs import listed
from support.wire import Hub, hub_process, wait_until
from support.world import RUN, START_S, World

Ending = Callable[[World], object]


def seen(world: World) -> list[object]:
    """All that a client can be told of the run, but for the incident log."""
    pages: list[object] = [world.status(), world.overview()]
    return pages + [world.view("rank", rank=rank) for rank in world.ranks]


def in_order(world: World) -> None:
    for rank in world.ranks:
        world.finish(rank)


def with_slow_interpreters(world: World) -> None:
    for rank in world.ranks:
        world.goodbye(rank)
    world.advance(2.0)
    for rank in world.ranks:
        world.exits(rank, 0)


def killed(world: World) -> None:
    world.kill(1).advance(0.5).kill(0, 15)


def hung_and_killed(world: World) -> None:
    world.advance(30.0)
    killed(world)


def by_the_launchers_word(world: World) -> None:
    world.run_end(1)


def by_the_launchers_word_after_the_ranks(world: World) -> None:
    in_order(world)
    world.advance(3.0)
    world.run_end(0)


ENDINGS: dict[str, Ending] = {
    "in order": in_order,
    "in order, slowly": with_slow_interpreters,
    "killed": killed,
    "hung and killed": hung_and_killed,
    "the launcher said so": by_the_launchers_word,
    "the launcher said so, too": by_the_launchers_word_after_the_ranks,
}


def trained(directory: Path) -> World:
    world = World(2, hello=False, recorder=Recorder(directory))
    world.state.began_s = START_S
    world.tick()
    world.advance(4.0)
    world.node_hello("node-0")
    for rank in world.ranks:
        world.hello(rank)
    for _ in range(20):
        world.step(step_s=0.5)
    return world


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_ended_run_reads_the_same_whenever_one_asks(tmp_path: Path, ending: str) -> None:
    """At once, a minute later, after the launcher's word, and from its recording in ten years."""
    world = trained(tmp_path)
    ENDINGS[ending](world)
    world.advance(1.0)  # a verdict may wait for news that is on its way
    first = seen(world)
    world.silent_hosts.update(world.hosts)
    world.advance(60.0)
    assert seen(world) == first
    world.core.close(world.now_s)
    restored = restore(tmp_path, RUN)
    assert restored is not None
    later_s = restored.last_s + 3e8
    core = Core(restored.state, Incidents(world.core.know.incidents.shown), now_s=later_s)
    world.core, world.now_s = core, later_s
    assert seen(world) == first


@pytest.mark.parametrize(
    ("ending", "up_s"),
    [
        ("in order", 14.0),
        ("in order, slowly", 14.0),
        ("killed", 14.5),
        ("hung and killed", 44.5),
        ("the launcher said so", 14.0),
        ("the launcher said so, too", 14.0),
    ],
)
def test_a_run_was_up_from_its_beginning_to_the_end_of_its_training(
    tmp_path: Path, ending: str, up_s: float
) -> None:
    """The last rank's goodbye or death, or the launcher's word where that came first."""
    world = trained(tmp_path)
    ENDINGS[ending](world)
    world.advance(5.0)
    assert world.overview().up_s == pytest.approx(up_s, abs=0.01)
    assert all((row.heard_s or 0.0) <= up_s for row in world.status().ranks)


def test_the_time_up_never_goes_back(tmp_path: Path) -> None:
    """Before the first rank, at its hello, across a restart of the ranks: one zero."""
    world = World(2, hello=False)
    world.state.began_s = START_S
    ups = []

    def ask() -> None:
        ups.append((world.overview().up_s, world.now_s - START_S))

    for _ in range(8):
        world.advance(1.0)
        ask()
    world.hello(0)
    ask()
    world.hello(1)
    for _ in range(4):
        world.step()
        ask()
    world.kill(1)
    world.new_attempt()
    world.step()
    ask()
    assert [up for up, _ in ups] == [pytest.approx(gone) for _, gone in ups]


def test_the_beginning_is_in_the_recording(tmp_path: Path) -> None:
    """A hub of later counts from the same zero."""
    world = trained(tmp_path)
    world.core.close(world.now_s)
    restored = restore(tmp_path, RUN)
    assert restored is not None
    assert restored.state.began_s == START_S


def test_a_new_attempt_lives_again(tmp_path: Path) -> None:
    """Ranks that are started again make the run live; its ages grow."""
    world = trained(tmp_path)
    killed(world)
    world.advance(5.0)
    assert world.status().state == "failed"
    world.new_attempt()
    world.step()
    world.advance(1.0)
    assert world.status().state == "running"
    assert world.overview().up_s == pytest.approx(world.now_s - START_S)


@pytest.mark.parametrize(("code", "state"), [(0, "finished"), (3, "failed")])
def test_a_command_in_which_no_rank_attached_ends_as_it_ended(code: int, state: str) -> None:
    """No ranks, no finding: clients can say that nobody called attach."""
    world = World(2, attached=[])
    world.state.began_s = START_S
    world.advance(2.0)
    world.run_end(code)
    world.advance(5.0)
    status, overview = world.status(), world.overview()
    assert (status.state, status.exit_code) == (state, code)
    assert (status.ranks, status.world_size, status.step, status.findings) == ([], 0, 0, [])
    assert (overview.state, overview.data_age_s, overview.steps_per_s) == (state, None, None)
    assert overview.up_s == pytest.approx(2.0)


# --- run.json --------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_process(tmp_path) as running:
        yield running


def hello(seq: int, attempt: int = 0) -> m.Hello:
    return m.Hello(attempt, 0, seq, 1.0, RUN, 1, 0, "h", 1, "n", "ddp", "cpu", 0, False, {})


@pytest.mark.processes
def test_run_json_tells_the_end_as_soon_as_it_has_come(hub: Hub) -> None:
    """While the hub still serves: the last rank's end, taken back when ranks start again, and the
    launcher's word with its exit code, also after the hub was killed."""
    read = hub.directory.read_info
    with hub.connect("agent") as a, hub.connect("viewer") as client:
        a.send(hello(1))
        client.wait_for_view("status", lambda status: status.ranks)
        assert read().ended_s is None
        a.send(m.Goodbye(0, 0, 2, 2.0, "finished", 5))
        wait_until(lambda: read().ended_s is not None, "the end in run.json")
        assert read().exit_code is None
        a.send(hello(1, attempt=1))
        wait_until(lambda: read().ended_s is None, "the end taken back")
        a.send(m.RunEnd(1, 15))
        wait_until(lambda: read().exit_code == 143, "the exit code in run.json")
        ended_s = read().ended_s
        assert ended_s is not None
        assert rundir.hub_is_alive(read())
        hub.kill()
        hub.start()
        wait_until(lambda: read().ended_s == ended_s, "the same end")
        assert client.wait_for_view("status", lambda status: status.state == "failed")


@pytest.mark.processes
def test_an_ended_run_whose_hub_still_serves_is_listed_as_ended(hub: Hub) -> None:
    """And is not in the way of the one that is live."""
    home = hub.directory.path.parent
    assert [run.state for run in listed(home)] == ["live"]
    with hub.connect("agent") as launcher:
        launcher.send(m.RunEnd(0))
        wait_until(lambda: hub.directory.read_info().exit_code == 0, "the end in run.json")
    (run,) = listed(home)
    assert (run.state, run.exit_code) == ("ended", 0)
    assert run.endpoint == hub.endpoint
    assert rundir.live_runs(rundir.list_runs(home)) == []
    assert rundir.find_run(home, None).run == hub.directory.run
