"""From an ending's first sign to its last word no headline calls the run healthy."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from rankscope.hub import snapshot
from rankscope.hub.core import Core
from rankscope.hub.incidents import Incidents
from rankscope.protocol import messages as m
from rankscope.protocol.shapes import HANGS
from rankscope.tui.demo.progress import progress_line
from rankscope.tui.text.check import check_line
from rankscope.tui.text.output import untoned
from rankscope.tui.words.verdict import Verdict, verdict
from support.collectives import TOKENS, Job
from support.world import World

RANKS = 3
Step = Callable[[World], object]


def training() -> Job:
    return Job(World(ranks=RANKS)).steps(12)


def hung() -> Job:
    """Rank 1 does not come to a collective, and is called so."""
    job = training()
    job.world.phase(1, m.Phase.FORWARD)
    job.enters(TOKENS, ranks=(0, 2)).hang(0.75)
    job.operations(0).operations(2).stack(1, "model.py:7 in forward")
    return job.hang(2.5)


def stuck() -> Job:
    """All have entered a collective that does not end."""
    job = training()
    job.enters(TOKENS).hang(0.75)
    for rank in range(RANKS):
        job.operations(rank).stack(rank)
    return job.hang(8.0)


def starved() -> Job:
    """Rank 1 waits for its batch."""
    job = training()
    job.world.phase(1, m.Phase.DATA)
    return job.enters(TOKENS, ranks=(0, 2)).hang(3.0)


def stopped() -> Job:
    """Rank 1 is stopped by a signal."""
    job = training()
    job.world.stop(1)
    return job.enters(TOKENS, ranks=(0, 2)).hang(3.0)


def raises(rank: int) -> list[Step]:
    """By Ctrl-C: it says so, says goodbye, and its process ends a moment later."""
    return [
        lambda world: world.raises(rank, "KeyboardInterrupt"),
        lambda world: world.exits(rank, 130),
    ]


def heeds(rank: int) -> list[Step]:
    return [lambda world: world.kill(rank, 15)]


def killed(rank: int) -> list[Step]:
    return [lambda world: world.kill(rank, 9)]


def breaks(rank: int) -> list[Step]:
    """It feels that another has gone."""
    return [
        lambda world: world.raises(rank, "RuntimeError", from_peer=True),
        lambda world: world.exits(rank, 1),
    ]


def exits(rank: int) -> list[Step]:
    """A handler of its own ends it in what looks like order."""
    return [lambda world: world.goodbye(rank), lambda world: world.exits(rank, 0)]


WAYS: dict[str, Callable[[int], list[Step]]] = {
    each.__name__: each for each in (raises, heeds, killed, breaks, exits)
}
ALIKE = [(name,) * RANKS for name in WAYS]
MIXED = [
    ("raises", "heeds", "killed"),
    ("raises", "breaks", "breaks"),
    ("heeds", "raises", "breaks"),
    ("exits", "heeds", "heeds"),
]


def scripts() -> Iterator[tuple[str, list[Step]]]:
    """The ways in which three ranks end, with who is late first or last."""
    for ways in (*ALIKE, *MIXED):
        for order in ((1, 0, 2), (2, 0, 1)):
            steps = [step for rank in order for step in WAYS[ways[rank]](rank)]
            yield f"{'-'.join(ways)}:{''.join(map(str, order))}", steps


def another_hub(world: World) -> None:
    """The hub is killed; another one goes on with what it has left."""
    state = snapshot.load(snapshot.dump(world.state))
    world.now_s += 1.0
    state.hub_was_away(world.now_s)
    world.core = Core(state, Incidents(world.core.know.incidents.shown), now_s=world.now_s)
    world.tick()


def headline(world: World) -> Verdict:
    """As it is on the first screen; the short forms say nothing better."""
    status, overview = world.view("status"), world.view("overview")
    said = verdict(
        state=status.state,
        finding=status.verdict,
        stalled_s=status.stalled_s,
        step=status.step,
        healthy_s=overview.healthy_s,
        exit_code=status.exit_code,
        stopped=status.stopped,
        ending=status.ending,
    )
    for short in (*check_line(status), progress_line(overview, 20)):
        assert ("healthy" in untoned(short)) == (said.head == "healthy"), short
    return said


def seen(world: World, steps: Sequence[Step], gap_s: float, restart_after: int) -> list[Verdict]:
    """All headlines while ``steps`` come to pass, ``gap_s`` apart."""
    said = []
    for at, step in enumerate(steps):
        step(world)
        said.append(headline(world))  # before the hub has made anything of it
        world.tick()
        said.append(headline(world))
        if at == restart_after:
            another_hub(world)
            said.append(headline(world))
        until_s = world.now_s + gap_s
        while world.now_s < until_s:
            world.advance(0.5)
            said.append(headline(world))
    return said


@pytest.mark.parametrize(("made", "gap_s"), [(training, 0.5), (hung, 0.5), (stopped, 0.5)])
def test_no_run_that_is_ending_is_called_healthy(made: Callable[[], Job], gap_s: float) -> None:
    """Whoever ends first, however, and whatever the order in which the news comes."""
    for name, steps in scripts():
        world = made().world
        for said in seen(world, steps, gap_s, -1):
            assert said.tone != "good" or said.head == "finished", (name, said.line())


@pytest.mark.parametrize(("made", "after"), [(training, 0), (hung, 0), (hung, 1)])
def test_a_hub_that_is_restarted_meanwhile_does_not_call_it_healthy(
    made: Callable[[], Job], after: int
) -> None:
    """What the log and the recording hold is enough."""
    for name, steps in list(scripts())[::3]:
        for said in seen(made().world, steps, 0.5, after):
            assert said.tone != "good" or said.head == "finished", (name, said.line())


@pytest.mark.parametrize("ways", [("raises",) * 3, ("heeds",) * 3, ("raises", "heeds", "killed")])
@pytest.mark.parametrize("made", [hung, stuck, starved])
@pytest.mark.parametrize("gap_s", [0.5, 3.0])
def test_a_hang_is_known_until_its_run_is_over(
    made: Callable[[], Job], ways: tuple[str, ...], gap_s: float
) -> None:
    """It goes neither with the first rank that ends nor with the last."""
    world = made().world
    (before,) = {f.kind for f in world.findings() if f.severity == "critical"}
    assert before in HANGS
    for rank in (1, 0, 2):
        for step in WAYS[ways[rank]](rank):
            step(world)
            for _ in range(int(gap_s / 0.5)):
                world.advance(0.5)
                status = world.status()
                assert status.verdict is not None
                assert status.verdict.severity == "critical"
                if ways == ("raises",) * 3:
                    assert status.verdict.kind == before


def test_a_hang_that_was_overcome_is_over_when_the_ranks_end() -> None:
    """Ranks that end in order did what they were waited for."""
    job = hung()
    job.does(TOKENS, ranks=(1,))
    for rank in (0, 2):
        job.completed[rank] = dict(job.entered[rank])
    job.steps(1)
    for rank in range(RANKS):
        job.world.finish(rank)
        job.world.advance(1.0)
        assert job.world.findings() == []


def test_who_has_ended_and_who_has_not_is_said() -> None:
    """Of a run that was well, while nothing more is known of its end."""
    world = training().world
    world.raises(1, "KeyboardInterrupt")
    world.advance(1.0)
    said = headline(world)
    assert said.line() == (
        "◌ ending   rank 1 has ended (KeyboardInterrupt), ranks 0 and 2 have not"
    )
