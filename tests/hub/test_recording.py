"""What is recorded comes back: snapshots, truncated tails, full disks, replay."""

import errno
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankscope.hub import snapshot
from rankscope.hub.core import Core
from rankscope.hub.incidents import IncidentFile, Incidents, read
from rankscope.hub.recording import (
    FRAME,
    SNAPSHOT,
    TICK,
    Recorder,
    pack,
    parse,
    read_segment,
    segments,
)
from rankscope.hub.restore import restore
from rankscope.hub.state import RunState
from rankscope.hub.state.parts import PARTS
from rankscope.hub.state.plausible import BadMessage
from rankscope.protocol import limits
from rankscope.protocol import messages as m
from support.samples import MESSAGES
from support.world import RUN, START_S, World


def recorded(directory: Path, **options: int) -> World:
    """A world whose hub records, from its first moment."""
    world = World(4, per_node=2, hello=False, recorder=Recorder(directory, **options))
    world.tick()
    for host in world.hosts:
        world.node_hello(host)
    for rank in world.ranks:
        world.hello(rank)
    return world


def eventful(world: World) -> World:
    """Something of everything a hub records."""
    for _ in range(5):
        world.step()
    world.from_rank(1, m.Groups, groups=(m.Group("0", "default_pg", "gloo", 4, (0, 1, 2, 3)),))
    world.from_rank(2, m.ProbeFault, probe="memory", error="OSError", step=1)
    world.ranks[3].seq += 2
    world.advance(3.0)
    world.kill(2)
    world.advance(0.1).raises(0, "RuntimeError", from_peer=True).exits(0, 1)
    world.advance(2.0)
    return world


def views_of(core: Core, now_s: float) -> list[object]:
    """Every view of a core, as a client would get it."""
    world = World(1, hello=False)
    world.core, world.now_s = core, now_s
    found: list[object] = [world.view("status"), world.view("overview")]
    return found + [world.view("rank", rank=rank) for rank in range(world.state.size())]


def again(directory: Path, world: World) -> Core:
    """A hub of later, from the recording."""
    restored = restore(directory, RUN)
    assert restored is not None
    assert restored.last_s == world.now_s
    core = Core(restored.state, Incidents(world.core.know.incidents.shown), now_s=restored.last_s)
    core.tick(restored.last_s)
    return core


def test_a_rebuilt_hub_gives_the_views_of_the_one_that_was_killed(tmp_path: Path) -> None:
    """Replay equals live: nothing but the bytes on disk is needed."""
    world = eventful(recorded(tmp_path))
    world.core.flush()
    assert views_of(again(tmp_path, world), world.now_s) == views_of(world.core, world.now_s)


def test_it_does_so_across_many_segments_and_snapshots(tmp_path: Path) -> None:
    """Wherever the newest snapshot stands."""
    world = recorded(tmp_path, segment_bytes=30_000, snapshot_every_bytes=4_000)
    for _ in range(45):
        eventful_steps(world)
        world.core.flush()
        assert views_of(again(tmp_path, world), world.now_s) == views_of(world.core, world.now_s)
    assert len(segments(tmp_path)) >= 3
    kinds = [record.kind for record in read_segment(segments(tmp_path)[0])]
    assert kinds.count(SNAPSHOT) > 1


def eventful_steps(world: World) -> None:
    for _ in range(10):
        world.step()
    world.advance(1.0)


def test_lost_messages_are_counted_across_a_restart_once(tmp_path: Path) -> None:
    """What came to nobody while the hub was away is missed; what came before is not."""
    world = recorded(tmp_path)
    world.step()
    world.core.flush()
    for sim in world.ranks.values():
        sim.mute = True
    world.advance(1.0)  # two beats of each rank go nowhere
    world.core = again_later(tmp_path)
    for sim in world.ranks.values():
        sim.mute = False
    world.step()
    assert [row.missed for row in world.status().ranks] == [2, 2, 2, 2]


def again_later(directory: Path) -> Core:
    restored = restore(directory, RUN)
    assert restored is not None
    return Core(restored.state, Incidents(), now_s=restored.last_s)


# --- snapshots -------------------------------------------------------------------------------

AGENT_KINDS = [kind for kind in MESSAGES if kind < m.Kind.VIEW_REQUEST]


@st.composite
def messages(draw: st.DrawFn) -> m.Message:
    """A message of an agent, a sentinel or the launcher, of a few ranks and attempts."""
    message = MESSAGES[draw(st.sampled_from(AGENT_KINDS))]
    changes: dict[str, object] = {}
    if isinstance(message, m.FromRank):
        changes = {
            "rank": draw(st.integers(0, 5)),
            "attempt": draw(st.integers(0, 2)),
            "seq": draw(st.integers(1, 9)),
            "t_s": draw(st.floats(0, 10)),
        }
    if isinstance(message, m.FromNode):
        changes = {"node": draw(st.sampled_from(["a", "b"])), "seq": draw(st.integers(1, 9))}
    if isinstance(message, m.Hello | m.NodeHello):
        changes["run"] = RUN
    if isinstance(message, m.Beat):
        steps = draw(st.lists(st.integers(1, 5), max_size=3))
        record = message.steps[0]
        changes["steps"] = tuple(msgspec.structs.replace(record, step=step) for step in steps)
    if isinstance(message, m.ProcessEnded):
        changes |= {"rank": draw(st.integers(0, 5)), "attempt": draw(st.integers(0, 2))}
    return msgspec.structs.replace(message, **changes)


@given(st.lists(messages(), max_size=40))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_snapshot_holds_everything(sent: list[m.Message]) -> None:
    """A state that was saved and loaded is the same, and goes on the same."""
    state = RunState(RUN)
    for number, message in enumerate(sent):
        try:
            state.apply(message, START_S + number)
        except BadMessage:
            continue
    state.tick(START_S + 100)
    copy = snapshot.load(snapshot.dump(state))
    assert snapshot.dump(copy) == snapshot.dump(state)
    for message in sent:
        for either in (state, copy):
            try:
                either.apply(message, START_S + 200)
            except BadMessage:
                continue
    assert snapshot.dump(copy) == snapshot.dump(state)


@given(st.binary(max_size=200))
def test_nonsense_is_no_snapshot(raw: bytes) -> None:
    """Bytes from anywhere are refused, not believed."""
    with pytest.raises(snapshot.BadSnapshot):
        snapshot.load(raw)


WRONGS: list[object] = [{}, [], None, b"x", {"size": 3, "step": b"abc"}]


def test_a_snapshot_with_a_damaged_later_part_has_that_part_empty() -> None:
    """An older version wrote it otherwise, or not at all; the rest of the run is kept."""
    world = eventful(World(4))
    parts = msgspec.msgpack.decode(snapshot.dump(world.state), strict=False)
    for name in PARTS:
        for wrong in WRONGS:
            state = snapshot.load(msgspec.msgpack.encode(parts | {name: wrong}))
            again = msgspec.msgpack.decode(snapshot.dump(state), strict=False)
            assert again["ranks"] == parts["ranks"]


def test_a_snapshot_with_any_old_part_missing_or_foreign_is_refused() -> None:
    """Nothing of it is taken over then."""
    world = eventful(World(4))
    parts = msgspec.msgpack.decode(snapshot.dump(world.state), strict=False)
    for name in parts.keys() - set(PARTS):
        for wrong in WRONGS:
            damaged = parts | {name: wrong}
            if wrong == [] and name in ("nodes", "history"):
                continue  # an empty one is whole
            with pytest.raises(snapshot.BadSnapshot):
                snapshot.load(msgspec.msgpack.encode(damaged))


# --- what a killed hub, a full disk or an accident leaves -------------------------------------


def test_a_segment_cut_off_anywhere_gives_its_whole_records() -> None:
    """At every single byte: the records before it, and no error."""
    records = [
        pack(1.0, SNAPSHOT, b"s" * 20),
        pack(2.0, FRAME, b"f" * 30),
        pack(3.0, TICK, None),
        pack(4.0, FRAME, b"g" * 300),
    ]
    raw = b"".join(records)
    ends = [sum(len(record) for record in records[: n + 1]) for n in range(len(records))]
    for cut in range(len(raw) + 1):
        assert len(list(parse(raw[:cut]))) == sum(1 for end in ends if end <= cut)


@given(st.binary(max_size=300))
def test_damage_ends_a_segment_and_raises_nothing(noise: bytes) -> None:
    """What stands before the damage is kept."""
    good = pack(1.0, SNAPSHOT, b"s") + pack(2.0, TICK, None)
    assert [record.kind for record in parse(good + noise)][:2] == [SNAPSHOT, TICK]


def test_a_recording_cut_off_at_any_byte_can_be_restored(tmp_path: Path) -> None:
    """From the segment's own snapshot, or from the segment before it."""
    world = recorded(tmp_path)
    world.step()
    world.core.flush()
    world.core.close(world.now_s)
    (first,) = segments(tmp_path)
    second = tmp_path / "00000002.rec"
    whole = pack(START_S + 9, SNAPSHOT, snapshot.dump(world.state)) + pack(START_S + 10, TICK, None)
    step = max(1, len(whole) // 200)
    for cut in (*range(0, len(whole), step), len(whole)):
        second.write_bytes(whole[:cut])
        restored = restore(tmp_path, RUN)
        assert restored is not None
        assert restored.state.ranks.step[:4].tolist() == [1, 1, 1, 1]
    assert first.exists()


def test_without_any_recording_there_is_nothing_to_restore(tmp_path: Path) -> None:
    """An empty folder, none at all, or one of another run."""
    assert restore(tmp_path, RUN) is None
    assert restore(tmp_path / "none", RUN) is None
    world = recorded(tmp_path)
    world.core.flush()
    assert restore(tmp_path, "another-run") is None


def test_old_segments_are_dropped_and_the_newest_kept(tmp_path: Path) -> None:
    """Not more segments than the limit, each not larger than its own."""
    recorder = Recorder(tmp_path, segment_bytes=2_000, snapshot_every_bytes=500)
    snap = b"s" * 100
    for number in range(2_000):
        if recorder.wants_snapshot(float(number)):
            recorder.snapshot(float(number), snap)
        recorder.frame(float(number), b"f" * 80)
        recorder.flush()
    recorder.close()
    kept = segments(tmp_path)
    assert len(kept) == limits.MAX_SEGMENTS
    assert int(kept[-1].stem) > limits.MAX_SEGMENTS
    assert all(path.stat().st_size <= 2_200 for path in kept)
    assert all(next(parse(path.read_bytes())).kind == SNAPSHOT for path in kept)


def test_segments_are_private(tmp_path: Path) -> None:
    """Tracebacks are in them."""
    recorded(tmp_path).core.flush()
    assert segments(tmp_path)[0].stat().st_mode & 0o077 == 0


def test_a_full_disk_stops_the_recording_and_not_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub goes on, says so, and records again when there is room."""
    world = recorded(tmp_path, segment_bytes=1 << 20)
    world.step()
    full = True
    write = os.write

    def no_space(descriptor: int, data: bytes) -> int:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr("rankscope.hub.recording.os.write", no_space)
    world.core.flush()
    for _ in range(5):
        world.step()
        world.core.flush()
        world.tick()
    assert world.status().step == 6
    assert "not recording" in world.overview().hub_note
    assert "No space left" in world.overview().hub_note
    full = False
    world.advance(15.0, moving=True)
    world.core.flush()
    assert world.overview().hub_note == ""
    assert restore(tmp_path, RUN) is not None
    assert views_of(again(tmp_path, world), world.now_s) == views_of(world.core, world.now_s)


class Disk:
    """A disk with ``room`` bytes left, as whoever writes to it meets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 1 << 40
        self._write = os.write
        monkeypatch.setattr("rankscope.hub.recording.os.write", self.write)

    def write(self, descriptor: int, data: bytes) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._write(descriptor, memoryview(data)[: self.room])
        self.room -= written
        return written


@pytest.mark.parametrize("room", [0, 40, 90, 190])
def test_a_full_disk_costs_no_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Nothing, part of a snapshot, or a snapshot and part of a frame fits now and then: what was
    recorded stays, byte for byte, and no heap of failed files is left."""
    disk = Disk(monkeypatch)
    recorder = Recorder(tmp_path, segment_bytes=2_000, snapshot_every_bytes=500)

    def go(begin: int, end: int) -> None:
        for number in range(begin, end):
            if recorder.wants_snapshot(float(number)):
                recorder.snapshot(float(number), b"s" * 50)
            recorder.frame(float(number), b"f" * 80)
            recorder.flush()

    go(0, 300)
    before = {path: path.read_bytes() for path in segments(tmp_path)}
    for number in range(300, 1_500, 20):
        disk.room = room
        go(number, number + 20)
        assert recorder.trouble
    after = {path: path.read_bytes() for path in segments(tmp_path)}
    assert len(after) <= len(before) + (60 * room) // 1_500 + 1
    assert len(after) <= limits.MAX_SEGMENTS
    grown = list(before)[-1]
    assert [after.get(path) for path in before if path != grown] == [
        before[path] for path in before if path != grown
    ]
    assert after[grown].startswith(before[grown])
    assert all(raw and next(parse(raw)).kind == SNAPSHOT for raw in after.values())
    disk.room = 1 << 40
    go(1_500, 1_520)
    assert recorder.trouble == ""
    recorder.close()
    newest = list(parse(segments(tmp_path)[-1].read_bytes()))
    assert newest[-1].hub_s == 1_519.0


def test_a_hub_that_ends_on_a_full_disk_leaves_no_empty_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment without a snapshot is worth nothing to anyone."""
    disk = Disk(monkeypatch)
    disk.room = 30
    recorder = Recorder(tmp_path)
    recorder.snapshot(1.0, b"s" * 50)
    assert "No space left" in recorder.trouble
    recorder.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_does_not_end_the_hub(tmp_path: Path) -> None:
    """The recording's place may be a file, or gone."""
    place = tmp_path / "recording"
    place.write_text("in the way")
    world = recorded(place)
    world.step()
    assert world.status().step == 1
    assert "not recording" in world.overview().hub_note


# --- the incident log ------------------------------------------------------------------------


def test_a_restarted_hub_writes_no_incident_twice(tmp_path: Path) -> None:
    """Ids stay, so what was open is known to be open."""
    path = tmp_path / "incidents.jsonl"
    world = World(4, incident_file=IncidentFile(path))
    world.step()
    world.kill(2)
    world.advance(1.0)
    state = snapshot.load(snapshot.dump(world.state))
    world.core = Core(
        state, Incidents(read(path)), now_s=world.now_s, incident_file=IncidentFile(path)
    )
    world.advance(5.0)
    assert [(entry.event, entry.id) for entry in read(path)] == [("opened", "rank-dead/0/2/2")]
    world.new_attempt()
    world.advance(1.0)
    assert [entry.event for entry in read(path)] == ["opened", "closed"]


def test_a_torn_last_line_does_no_harm(tmp_path: Path) -> None:
    """A hub killed while it wrote leaves half a line; the next one starts a new line."""
    path = tmp_path / "incidents.jsonl"
    world = World(4, incident_file=IncidentFile(path))
    world.step()
    world.stop(1)
    world.tick()
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    world.core = Core(
        world.state, Incidents(read(path)), now_s=world.now_s, incident_file=IncidentFile(path)
    )
    world.cont(1)
    world.tick()
    assert [entry.event for entry in read(path)] == ["opened", "closed"]


def test_incidents_wait_for_room_on_the_disk(tmp_path: Path) -> None:
    """An entry that could not be written is written later."""
    path = tmp_path / "missing" / "incidents.jsonl"
    world = World(4, incident_file=IncidentFile(path))
    world.step()
    world.kill(1)
    world.tick()
    assert "cannot write" in world.overview().hub_note
    path.parent.mkdir()
    world.advance(1.0)
    assert [entry.event for entry in read(path)] == ["opened"]
    assert world.overview().hub_note == ""


def test_a_closing_line_tells_the_last_that_was_known(tmp_path: Path) -> None:
    """Victims and evidence grow while a finding is open."""
    world = World(4)
    world.step()
    world.stop(1)
    world.tick()
    world.advance(5.0)
    world.cont(1)
    world.tick()
    opened, closed = world.view("incidents").incidents
    assert opened.finding.victims == []
    assert closed.finding.victims == [0, 2, 3]
    assert closed.finding.since_s == pytest.approx(5.0, abs=0.3)
