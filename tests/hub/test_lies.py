"""An agent's key can say anything: it costs the hub little, and other ranks nothing."""

from pathlib import Path

import msgspec
import pytest

from rankscope.hub import snapshot
from rankscope.hub.recording import Recorder
from rankscope.hub.state.columns import MAX_SIZE
from rankscope.hub.state.nodes import MAX_NODES
from rankscope.hub.state.sequences import MAX_JUMP
from rankscope.protocol import codec, limits
from rankscope.protocol import messages as m
from support.samples import MESSAGES
from support.world import RUN, World

FROM_RANKS = [kind for kind, message in MESSAGES.items() if isinstance(message, m.FromRank)]
FROM_NODES = [kind for kind, message in MESSAGES.items() if isinstance(message, m.FromNode)]


def sample(kind: m.Kind, **changes: object) -> m.Message:
    """The sample of ``kind`` as one of this run."""
    message = MESSAGES[kind]
    if isinstance(message, m.Hello | m.NodeHello):
        changes = {"run": RUN, **changes}
    return msgspec.structs.replace(message, **changes)


def wiped(world: World) -> bytes:
    """The whole state, but for the count of bad frames."""
    world.state.bad_frames = 0
    return snapshot.dump(world.state)


def test_a_claimed_world_costs_no_more_than_the_hub_can_show() -> None:
    """The number is shown as claimed; rows and memory end at the hub's limit."""
    world = World(1)
    world.hello(0, world_size=limits.MAX_WORLD_SIZE)
    world.step()
    status = world.status()
    assert status.world_size == world.overview().world_size == limits.MAX_WORLD_SIZE
    assert len(status.ranks) == world.state.ranks.size == MAX_SIZE
    assert status.step == 1
    assert len(snapshot.dump(world.state)) < 1500 * MAX_SIZE
    assert len(world.ask("status").body) < limits.MAX_REPLY_FRAME_BYTES
    copy = snapshot.load(snapshot.dump(world.state))
    assert snapshot.dump(copy) == snapshot.dump(world.state)


@pytest.mark.parametrize("kind", [*FROM_RANKS, m.Kind.PROCESS_ENDED])
@pytest.mark.parametrize("attempt", [0, 1])
@pytest.mark.parametrize("rank", [MAX_SIZE, limits.MAX_WORLD_SIZE - 1])
def test_a_rank_beyond_all_rows_is_a_bad_frame(kind: m.Kind, attempt: int, rank: int) -> None:
    """Whatever it says, and whether or not the world is said to be as large."""
    for world in (World(2), World(2, hello=False)):
        before = wiped(world)
        changes: dict[str, object] = {"rank": rank, "attempt": attempt, "seq": 1}
        if kind == m.Kind.HELLO:
            changes["world_size"] = limits.MAX_WORLD_SIZE
        if kind == m.Kind.PROCESS_ENDED:
            changes["node"] = "liar"
        world.send(sample(kind, **changes))
        assert world.state.bad_frames == 1
        assert wiped(world) == before


@pytest.mark.parametrize("kind", FROM_RANKS + FROM_NODES)
@pytest.mark.parametrize("seq", [MAX_JUMP + 100, limits.MAX_COUNT])
def test_a_number_that_cannot_follow_is_a_bad_frame(kind: m.Kind, seq: int) -> None:
    """The sender's own next message is still news, and nothing was lost."""
    world = World(4)
    world.step()
    for attempt in (0, 1):
        before = wiped(world)
        changes: dict[str, object] = {"seq": seq}
        if kind in FROM_RANKS:
            changes |= {"rank": 1, "attempt": attempt}
        else:
            changes |= {"node": "node-0:1"}
        world.send(sample(kind, **changes))
        assert world.state.bad_frames == 1
        assert wiped(world) == before
    world.step()
    status = world.status()
    assert (status.step, status.dropped) == (2, 0)


def test_the_largest_numbers_add_up_to_no_nonsense() -> None:
    """Counts of several ranks may be more than 63 bits: the sum stays a count, and is kept."""
    world = World(4)
    most = limits.MAX_COUNT
    world.step(tokens=most, loss=1e308, grad_norm=1e308, grad_norm_sharded=True)
    for rank in world.ranks:
        world.ranks[rank].seq += MAX_JUMP - 1
        world.beat(rank, dropped=most, microbatch=most, activity=most)
    assert world.state.bad_frames == 0
    assert world.status().dropped == world.overview().dropped == most
    copy = snapshot.load(snapshot.dump(world.state))
    assert snapshot.dump(copy) == snapshot.dump(world.state)
    for rank in world.ranks:
        world.beat(rank, step=most)
        world.kill(rank)
    world.advance(1.0)
    assert world.finding("rank-dead").ranks == [0, 1, 2, 3]
    assert world.status().step == most
    snapshot.load(snapshot.dump(world.state))


@pytest.mark.parametrize("kind", [*FROM_RANKS, *FROM_NODES, m.Kind.RUN_END])
def test_what_comes_again_is_not_recorded_again(tmp_path: Path, kind: m.Kind) -> None:
    """Copies of one frame, or of an attempt that is over, push nothing out of the recording."""
    recorder = Recorder(tmp_path)
    world = World(4, hello=False, recorder=recorder)
    world.tick()
    changes: dict[str, object] = {"rank": 1, "attempt": 1} if kind in FROM_RANKS else {}
    message = sample(kind, **changes)
    world.send(message)
    world.core.flush()
    (segment,) = tmp_path.iterdir()
    once = segment.read_bytes()
    state = wiped(world)
    assert codec.encode(message) in once
    again = [message]
    if kind in FROM_RANKS:
        again += [msgspec.structs.replace(message, attempt=0, seq=seq) for seq in (1, 2, 99)]
    for copy in again * 10:
        world.now_s += 0.01
        world.send(copy)
    world.core.flush()
    assert segment.read_bytes() == once
    assert wiped(world) == state


def test_sentinels_beyond_the_limit_are_bad_frames() -> None:
    """Those that are known go on speaking."""
    world = World(2)
    hello = sample(m.Kind.NODE_HELLO, seq=1)
    for number in range(MAX_NODES + 100):
        world.send(msgspec.structs.replace(hello, node=f"n{number}", host=f"h{number}"))
    assert len(world.state.nodes.sentinels) == MAX_NODES
    assert world.state.bad_frames == 101
    world.report("node-0")
    world.kill(1)
    assert world.state.bad_frames == 101
    assert world.finding("rank-dead").ranks == [1]


def test_a_new_sentinel_takes_the_place_of_one_that_its_host_has_replaced() -> None:
    """A long run with many restarts of its sentinels never runs out of places."""
    world = World(2)
    hello = sample(m.Kind.NODE_HELLO, seq=5)
    for number in range(MAX_NODES + 10):
        world.send(msgspec.structs.replace(hello, node=f"n{number}", host="one"))
    assert world.state.bad_frames == 0
    assert len(world.state.nodes.sentinels) == MAX_NODES
    newest = f"n{MAX_NODES + 9}"
    assert world.state.nodes.by_host["one"].node == newest
    report = m.NodeReport(newest, 6, 0.0, (), load_1min=3.0)
    world.send(report)
    (node,) = [node for node in world.overview().nodes if node.host == "one"]
    assert node.load_1min == 3.0
    assert world.state.node_sequences.missed[:MAX_NODES].max() == 4
    snapshot.load(snapshot.dump(world.state))


def test_a_crowd_of_sentinels_leaves_the_overview_readable() -> None:
    """Machines without ranks are told up to a number, their words up to a length."""
    world = World(2)
    world.step()
    note = "x" * limits.MAX_TEXT_CHARS
    gpu = m.GpuSample(0, "g" * 40, 1.0, 1, 1, 1.0, 1.0, 1.0, (), 0, 0)
    for number in range(2_000):
        name = f"n{number}"
        world.send(m.NodeHello(name, 1, 0.0, RUN, name, 1, note, note, {"f": note}))
        world.send(m.NodeReport(name, 2, 0.0, (), (gpu,) * limits.MAX_GPUS_PER_NODE))
    assert len(world.ask("overview").body) < limits.MAX_REPLY_FRAME_BYTES
    nodes = world.overview().nodes
    assert nodes[0].ranks == [0, 1]
    assert len(nodes) < 1_000
    assert len(snapshot.dump(world.state)) < 2_000 * 15_000


@pytest.mark.parametrize("view", ["status", "overview", "incidents"])
def test_a_view_that_no_client_takes_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    """Sent as it is, it would end the client's connection without a word."""
    world = World(4)
    world.step()
    world.kill(1)
    world.tick()
    assert world.ask(view).error == ""
    monkeypatch.setattr(limits, "MAX_REPLY_FRAME_BYTES", 300)
    reply = world.ask(view)
    assert "too large" in reply.error
    assert not reply.changed
