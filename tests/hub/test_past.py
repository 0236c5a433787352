"""A run as it was at any moment of its recording."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rankscope.hub.core import Core
from rankscope.hub.incidents import IncidentFile, Incidents
from rankscope.hub.past import Past, PastServer
from rankscope.hub.recording import Recorder
from rankscope.hub.state import RunState
from rankscope.hub.tape import NoTape, Tape
from rankscope.protocol import codec, limits, rundir, shapes
from rankscope.protocol import messages as m
from support.world import RUN, START_S, World


class Recorded:
    """A world that was recorded, what its hub said at some moments, and the way back."""

    def __init__(self, home: Path, **options: int) -> None:
        self.directory = rundir.create(home / "runs", RUN, command=[], name="", now_s=START_S)
        self.world = World(
            4,
            per_node=2,
            hello=False,
            recorder=Recorder(self.directory.recording, **options),
            incident_file=IncidentFile(self.directory.incidents),
        )
        self.said: dict[float, shapes.Status] = {}
        self.world.tick()
        for host in self.world.hosts:
            self.world.node_hello(host)
        for rank in self.world.ranks:
            self.world.hello(rank)

    def note(self) -> float:
        """Keep what the hub says now."""
        self.world.tick()
        self.world.core.flush()
        self.said[self.world.now_s] = self.world.view("status")
        return self.world.now_s

    def steps(self, count: int) -> float:
        for _ in range(count):
            self.world.step()
            self.world.advance(0.5)
        return self.note()

    def past(self) -> Past:
        return Past(self.directory, self.directory.read_info())


def view(core: Core, now_s: float, name: str = "status", since: int = 0, **args: Any) -> Any:
    request = m.ViewRequest(1, name, since, args)
    core.receive(b"client", "viewer", codec.encode(request), now_s)
    (_, frame), *_ = core.outbox
    core.outbox.clear()
    reply = codec.decode(frame, limits.MAX_REPLY_FRAME_BYTES)
    assert isinstance(reply, m.ViewReply)
    return msgspec.msgpack.decode(reply.body, type=shapes.VIEWS[name])


def told(status: shapes.Status) -> object:
    """What a status says that does not depend on which hub process says it."""
    rows = [(r.rank, r.step, r.phase, r.link, r.process, r.ended, r.loss) for r in status.ranks]
    findings = [(f.kind, f.ranks, f.victims, f.step) for f in status.findings]
    return (status.state, status.step, rows, findings)


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """Eight steps, a death, and what follows."""
    made = Recorded(tmp_path, snapshot_every_bytes=2000)
    made.steps(4)
    made.steps(4)
    made.world.advance(0.1)
    made.world.kill(2)
    made.world.advance(0.5)
    made.note()
    made.world.advance(2.0)
    made.note()
    return made


def test_each_moment_is_as_the_hub_told_it_then(recorded: Recorded) -> None:
    """Forward, backward and again: the same state, the same verdict."""
    past = recorded.past()
    moments = list(recorded.said)
    for at_s in [*moments, *reversed(moments), moments[2], moments[0], moments[3]]:
        core, then_s = past.core_at(at_s)
        assert then_s == at_s
        assert told(view(core, then_s)) == told(recorded.said[at_s])


def test_a_death_is_not_known_before_it_happened(recorded: Recorded) -> None:
    """Scrubbing back over an incident takes it away, and forward brings it again."""
    past = recorded.past()
    before_s, after_s = list(recorded.said)[1], list(recorded.said)[3]
    for at_s, kinds in ((after_s, ["rank-dead"]), (before_s, []), (after_s, ["rank-dead"])):
        core, then_s = past.core_at(at_s)
        assert [finding.kind for finding in view(core, then_s).findings] == kinds
        log = view(core, then_s, "incidents").incidents
        assert [entry.finding.kind for entry in log] == kinds


def test_versions_only_grow_and_going_back_tells_all_rows(recorded: Recorded) -> None:
    """A client that holds the rows of a later moment gets those of the earlier one in full."""
    past = recorded.past()
    late, early = list(recorded.said)[3], next(iter(recorded.said))
    core, then_s = past.core_at(late)
    version = core.state.version
    core, then_s = past.core_at(early)
    assert core.state.version > version
    assert len(view(core, then_s, since=version).ranks) == 4


def test_going_on_tells_changed_rows_alone(tmp_path: Path) -> None:
    """Playing forward costs what changed."""
    recorded = Recorded(tmp_path)
    first_s = recorded.steps(3)
    recorded.world.step(1)
    recorded.world.advance(0.1)
    second_s = recorded.note()
    past = recorded.past()
    core, _ = past.core_at(first_s)
    version = core.state.version
    core, then_s = past.core_at(second_s)
    status = view(core, then_s, since=version)
    assert not status.full


def test_the_recording_of_a_live_run_is_read_on(tmp_path: Path) -> None:
    """What was written since the last look is there at the next."""
    recorded = Recorded(tmp_path)
    recorded.steps(2)
    past = recorded.past()
    _, last_s = past.core_at(1e12)
    later_s = recorded.steps(3)
    core, then_s = past.core_at(1e12)
    assert last_s < then_s == later_s
    assert view(core, then_s).step == 5


def test_the_ends_of_the_recording_are_kept_to(recorded: Recorded) -> None:
    """Before the first record there is nothing, and after the last one neither."""
    past = recorded.past()
    described = past.recording()
    assert past.core_at(0.0)[1] == described.first_s == START_S
    assert past.core_at(1e12)[1] == described.last_s == recorded.world.now_s
    assert not described.growing
    assert [moment.kind for moment in described.moments] == ["rank-dead"]


def test_many_segments_are_one_tape(tmp_path: Path) -> None:
    """The state goes on over the end of a file, and the oldest that is left is the beginning."""
    recorded = Recorded(tmp_path, segment_bytes=10_000, snapshot_every_bytes=5_000)
    moments = [recorded.steps(10) for _ in range(8)]
    files = sorted(recorded.directory.recording.glob("*.rec"))
    assert len(files) >= 2
    past = recorded.past()
    for at_s in [*moments, *reversed(moments)]:
        assert view(*past.core_at(at_s)).step == recorded.said[at_s].step
    files[0].unlink()
    assert recorded.past().recording().first_s > START_S


def test_a_damaged_segment_loses_what_stands_after_the_damage(recorded: Recorded) -> None:
    """What can be read is shown, and nothing raises."""
    (path, *_) = sorted(recorded.directory.recording.glob("*.rec"))
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2] + b"\xc1" * 100)
    past = recorded.past()
    first_s, last_s = past.recording().first_s, past.recording().last_s
    assert first_s == START_S
    assert START_S < last_s < recorded.world.now_s
    assert view(*past.core_at(1e12)).step >= 0


def test_nothing_recorded_is_said_in_words(tmp_path: Path) -> None:
    """An empty folder is no tape."""
    with pytest.raises(NoTape, match="no segment"):
        Tape(tmp_path, "").span()


def test_a_request_that_names_a_moment_is_answered_as_of_then(recorded: Recorded) -> None:
    """Others are answered as of the end; both by one hub, to one client."""
    now_s = recorded.world.now_s
    end = Core(RunState(RUN), Incidents(), now_s=now_s)
    server = PastServer(recorded.past(), end)
    early_s = next(iter(recorded.said))

    def ask(name: str, **args: int | str) -> m.ViewReply:
        frame = codec.encode(m.ViewRequest(7, name, 0, args))
        server.receive(b"client", "viewer", frame, now_s)
        (_, answer), *_ = server.outbox
        server.outbox.clear()
        reply = codec.decode(answer, limits.MAX_REPLY_FRAME_BYTES)
        assert isinstance(reply, m.ViewReply)
        return reply

    reply = ask("status", at_ms=int(early_s * 1000))
    assert reply.hub_s == pytest.approx(early_s, abs=0.001)
    assert msgspec.msgpack.decode(reply.body, type=shapes.Status).step == 4
    assert ask("status").hub_s == now_s
    described = msgspec.msgpack.decode(ask("recording").body, type=shapes.Recording)
    assert described.last_s == now_s
    assert ask("rank", at_ms=int(early_s * 1000), rank=99).error
    assert "no rank 99" in ask("rank", at_ms=int(early_s * 1000), rank=99).error
