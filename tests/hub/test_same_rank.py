"""Two processes that say they are the same rank: two plain scripts under one launcher, say."""

import pytest

from rankscope.hub import snapshot
from rankscope.hub.recording import FRAME, Record
from rankscope.hub.restore import replay
from rankscope.protocol import codec
from rankscope.protocol import messages as m
from support.hello import hello_fields
from support.world import RUN, World


class Other:
    """A second process that says it is rank 0, on a connection of its own."""

    def __init__(self, world: World, pid: int = 2000, host: str = "node-0") -> None:
        self.world, self.pid, self.host = world, pid, host
        self.seq = 0
        self.step = 0

    def send(self, message: type[m.FromRank], /, **fields: object) -> None:
        self.seq += 1
        built = message(
            attempt=self.world.attempt,
            rank=0,
            seq=self.seq,
            t_s=self.world.now_s - 7.0,
            **fields,
        )
        self.world.send(built, "other")

    def hello(self) -> None:
        fields = hello_fields(RUN, self.world.size, 0, self.host, self.pid, trainer="plain")
        self.send(m.Hello, **fields)

    def step_on(self) -> None:
        self.step += 1
        now_s = self.world.now_s - 7.0
        record = m.StepRecord(self.step, now_s, 0.1, 0.0, 0.1, 0.0, 0.0, 0.0, 1, 99.0, 1, 1.0)
        self.send(
            m.Beat,
            step=self.step,
            microbatch=1,
            phase=m.Phase.DATA,
            phase_t_s=now_s,
            activity=self.step,
            steps=(record,),
        )


def both(world: World, other: Other, steps: int = 10) -> None:
    for _ in range(steps):
        world.step()
        other.step_on()
        world.tick()


@pytest.mark.parametrize("host", ["node-0", "node-9"])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("before", [0, 5])
def test_the_first_is_kept_and_the_second_said(host: str, ranks: int, before: int) -> None:
    """Nothing of the second is mixed into the rank's row, its history or its losses."""
    world, alone = World(ranks), World(ranks)
    for each in (world, alone):
        for _ in range(before):
            each.step()
    other = Other(world, host=host, pid=2000 if host == "node-0" else 1000)
    other.hello()
    both(world, other)
    for _ in range(10):
        alone.step()
    status = world.status()
    assert status.ranks == alone.status().ranks
    assert status.step == before + 10
    assert (status.dropped, world.overview().bad_frames) == (0, 0)
    assert len(world.view("incidents").incidents) == 1
    assert world.overview().history == alone.overview().history
    finding = world.finding("duplicate-rank")
    assert (finding.severity, finding.ranks) == ("info", [0])
    assert finding.headline.startswith("two processes say they are rank 0")
    assert f"pid {other.pid} on {host}" in finding.headline
    assert "pid 1000 on node-0" in finding.headline


def test_an_end_of_the_second_is_no_end_of_the_first() -> None:
    """Its goodbye and its exception are its own."""
    world = World(1)
    other = Other(world)
    other.hello()
    both(world, other)
    other.send(
        m.Raised,
        type="E",
        message="",
        traceback="",
        source="",
        step=3,
        phase=m.Phase.DATA,
        from_peer=False,
        event_t_s=0.0,
    )
    other.send(m.Goodbye, reason="exception", step=3)
    world.step()
    assert world.status().state == "running"
    assert world.kinds() == ["duplicate-rank"]


def test_the_second_is_heard_once_the_first_has_ended() -> None:
    """It is asked who it is, and what it says counts from then on."""
    world = World(1)
    other = Other(world)
    other.hello()
    both(world, other)
    world.finish(0)
    world.advance(1.0)
    world.replies()
    other.step_on()
    assert world.replies() == [(b"other", m.WhoAreYou(0))]
    other.hello()
    other.step_on()
    row = world.status().ranks[0]
    assert (row.pid, row.step, row.missed, row.loss) == (2000, other.step, 0, 99.0)
    assert world.findings() == []


def test_a_first_that_comes_back_after_it_was_replaced_is_not_mixed_in() -> None:
    """A process that was stopped for long, and whose rank another has taken."""
    world = World(1)
    world.step()
    world.now_s += 4.0
    other = Other(world)
    other.hello()
    other.step_on()
    world.step()
    world.hello(0)
    both(world, other)
    row = world.status().ranks[0]
    assert (row.pid, row.step, row.missed, row.loss) == (2000, 11, 0, 99.0)
    assert world.kinds() == ["duplicate-rank"]


def test_a_restarted_process_is_no_second_one() -> None:
    """Once the first has ended, been silent, or begun another attempt."""
    for end in ("killed", "silent", "attempt"):
        world = World(1)
        both(world, Other(World(1)), 3)
        if end == "killed":
            world.kill(0)
        elif end == "silent":
            world.now_s += 3.0
        else:
            world.attempt += 1
        other = Other(world)
        other.hello()
        other.step_on()
        assert world.status().ranks[0].pid == 2000
        assert world.findings() == []


def test_a_second_process_survives_a_restart_of_the_hub() -> None:
    """The recording tells who was first, and a snapshot does."""
    world = World(1)
    world.step()
    copy = snapshot.load(snapshot.dump(world.state))
    other = Other(world)
    other.hello()
    hello = m.Hello(0, 0, 1, 0.0, RUN, 1, 0, "node-0", 2000, "o", "p", "cpu", 0, False, {})
    replay(copy, [Record(world.now_s, FRAME, codec.encode(hello))])
    assert snapshot.dump(copy) == snapshot.dump(world.state)
    assert snapshot.dump(snapshot.load(snapshot.dump(copy))) == snapshot.dump(copy)
