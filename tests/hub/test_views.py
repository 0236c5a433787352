"""What clients are told: numbers of the run, rows that changed, views that are not there."""

import math

import msgspec
import pytest

from rankscope.protocol import codec, shapes
from rankscope.protocol import messages as m
from support.world import RUN, START_S, World


def test_the_run_is_at_the_step_that_every_rank_completed() -> None:
    """The slowest rank that was heard of counts."""
    world = World(3)
    world.step()
    world.step(0, 1)
    assert world.status().step == 1
    assert [row.step for row in world.status().ranks] == [2, 2, 1]


def test_history_is_the_mean_over_ranks_and_heals_when_a_rank_comes_late() -> None:
    """A late hello neither hides steps nor spoils their means."""
    world = World(2)
    world.step(0, loss=1.0)
    assert world.overview().history.step == []
    world.step(1, loss=3.0)
    history = world.overview().history
    assert (history.step, history.loss) == ([1], [2.0])
    assert world.overview().loss == 2.0


def test_values_that_come_off_the_device_late_are_added() -> None:
    """A loss sent after its step appears in the history and in the rank's row."""
    world = World(2)
    world.step(loss=None, grad_norm=None)
    assert world.overview().loss is None
    for rank in (0, 1):
        world.beat(rank, late=(m.LateValues(1, loss=4.0 + rank, grad_norm=0.5),))
    assert world.overview().loss == 4.5
    assert world.overview().grad_norm == 0.5
    assert world.status().ranks[1].loss == 5.0


def test_shards_of_the_gradient_norm_are_combined() -> None:
    """The global norm is the root of the sum of the shards' squares, on every row."""
    world = World(2)
    world.step(0, grad_norm=3.0, grad_norm_sharded=True)
    assert world.status().ranks[0].grad_norm is None
    world.step(1, grad_norm=4.0, grad_norm_sharded=True)
    assert world.overview().grad_norm == 5.0
    assert [row.grad_norm for row in world.status().ranks] == [5.0, 5.0]


def test_a_loss_that_is_not_a_number_is_shown_as_such() -> None:
    """NaN is a value; only what was never told is unknown."""
    world = World(1)
    assert world.status().ranks[0].loss is None
    world.step(loss=math.nan, grad_norm=math.inf)
    row = world.status().ranks[0]
    assert row.loss is not None
    assert math.isnan(row.loss)
    assert row.grad_norm == math.inf
    assert math.isnan(world.overview().loss or 0.0)


def test_speed_is_measured_over_recent_steps_and_falls_when_none_come() -> None:
    """Steps a second, their median and spread, tokens of all ranks, phases."""
    world = World(2)
    assert world.overview().steps_per_s is None
    for _ in range(10):
        world.step(step_s=0.5)
    overview = world.overview()
    assert overview.steps_per_s == pytest.approx(2.0)
    assert overview.tokens_per_s == pytest.approx(400.0)
    assert overview.step_s == pytest.approx(0.5)
    assert overview.step_spread_s == pytest.approx(0.0)
    assert overview.phase_s["backward"] == pytest.approx(0.25)
    assert sum(overview.phase_s.values()) == pytest.approx(0.5)
    world.advance(60.0)
    assert world.overview().steps_per_s == 0.0


def test_an_ended_run_grows_no_older() -> None:
    """The time up ends with the run, and so does its speed."""
    world = World(2)
    for _ in range(4):
        world.step(step_s=0.5)
    for rank in (0, 1):
        world.finish(rank)
    up_s = world.overview().up_s
    speed = world.overview().steps_per_s
    world.advance(30.0)
    assert world.overview().up_s == up_s == pytest.approx(2.0)
    assert world.overview().steps_per_s == speed
    row = world.status().ranks[0]
    assert (row.link, row.phase, row.ended, row.process) == ("down", "ended", "exit 0", "ended")


def test_a_run_that_fails_says_how_its_command_ended() -> None:
    """The launcher's exit code, 128+n for a signal."""
    world = World(1)
    world.step()
    world.kill(0)
    world.run_end(1, 9)
    assert (world.status().state, world.status().exit_code) == ("failed", 137)


def test_only_changed_rows_are_sent_to_a_client_that_has_the_rest() -> None:
    """A reply since a version holds the rows that changed after it, and no others."""
    world = World(4)
    world.step()
    world.tick()
    version = world.ask("status").version
    assert not world.ask("status", version).changed
    world.beat(2)
    reply = world.ask("status", version)
    status = msgspec.msgpack.decode(reply.body, type=shapes.Status)
    assert reply.changed
    assert not status.full
    assert [row.rank for row in status.ranks] == [2]
    assert status.world_size == 4


def test_a_version_the_hub_never_gave_is_answered_in_full() -> None:
    """Versions from before a restart, or from nowhere, bring the whole view."""
    world = World(2)
    for since in (1, int(START_S * 1e6) - 1, 1 << 62):
        status = msgspec.msgpack.decode(world.ask("status", since).body, type=shapes.Status)
        assert status.full
        assert len(status.ranks) == 2


def test_a_row_changes_when_its_rank_falls_silent() -> None:
    """What the mere passing of time changes has a version, too."""
    world = World(2)
    world.step()
    world.ranks[1].mute = True
    world.advance(1.0)
    version = world.ask("status").version
    world.state.ranks.heard_s[0] = world.now_s + 2.0  # rank 0 stays up without a word
    world.now_s += 1.5
    world.tick()
    status = msgspec.msgpack.decode(world.ask("status", version).body, type=shapes.Status)
    assert [(row.rank, row.link) for row in status.ranks] == [(1, "silent")]


def test_ages_are_as_of_the_reply() -> None:
    """Between two diagnoses findings go on ageing."""
    world = World(2)
    world.step()
    world.kill(1)
    world.tick()
    world.now_s += 0.2
    assert world.view("status").findings[0].since_s == pytest.approx(0.2)
    assert world.view("status").ranks[0].heard_s == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("view", "args", "says"),
    [
        ("rank", {"rank": 4}, "there is no rank 4; this run has 4"),
        ("rank", {"rank": "two"}, "there is no rank two"),
        ("rank", {}, "there is no rank None"),
        ("weather", {}, "there is no view 'weather'"),
    ],
)
def test_what_is_not_there_is_said_in_words(
    view: str, args: dict[str, int | str], says: str
) -> None:
    """An unknown view or rank is answered with an error and no body."""
    reply = World(4).ask(view, 0, **args)
    assert says in reply.error
    assert bytes(reply.body) == b"\xc0"


@pytest.mark.parametrize("view", ["rank", "numerics", "steps", "collectives"])
@pytest.mark.parametrize(
    ("ranks", "has"),
    [
        (0, "no rank of this run has been heard of"),
        (1, "this run has 1 rank"),
        (2, "this run has 2 ranks"),
    ],
)
def test_a_rank_that_is_not_there_is_told_beside_how_many_are(
    view: str, ranks: int, has: str
) -> None:
    """In whichever view it was asked for; of a run of which nobody was heard, that."""
    assert World(ranks).ask(view, 0, rank=7).error.endswith(has)


def test_a_ranks_page_has_all_that_is_known_of_it() -> None:
    """Facts, groups with their sequence numbers, memory, steps, probe faults."""
    world = World(2)
    world.from_rank(1, m.Groups, groups=(m.Group("0", "default_pg", "gloo", 2, (0, 1)),))
    world.step()
    memory = m.Memory(None, None, None, None, None, 10, 20)
    world.beat(1, collectives=(m.CollectiveStatus("0", 7, -1, 6),), memory=memory)
    world.from_rank(1, m.ProbeFault, probe="memory", error="OSError", step=1)
    world.report("node-0")
    page = world.view("rank", rank=1)
    assert page.facts == {"torch": "2.13.0"}
    assert page.groups[0].ranks == [0, 1]
    assert (page.groups[0].last_enqueued, page.groups[0].last_completed) == (7, 6)
    assert page.step_s_history == [pytest.approx(0.2)]
    assert page.memory["peak_resident_bytes"] == 20
    assert page.row.memory_peak_bytes == 20
    assert (page.row.probes_off, page.probe_faults) == (["memory"], {"memory": "OSError"})
    assert page.cpu_s == pytest.approx(1.2)
    assert page.phase_s["forward"] == pytest.approx(0.06)


def test_nodes_are_listed_with_what_their_sentinel_reads() -> None:
    """GPU readings where there are some, words where not."""
    world = World(4, per_node=2)
    gpu = m.GpuSample(0, "H100", 97.0, 1, 2, 64.0, None, None, ("sw_power_cap",), 0, None)
    world.from_node("node-1", m.NodeReport, processes=(), gpus=(gpu,), load_1min=2.5)
    first, second = world.overview().nodes
    assert (first.host, first.ranks, first.sentinel) == ("node-0", [0, 1], "up")
    assert first.gpu_note.startswith("none")
    assert (second.ranks, second.load_1min) == ([2, 3], 2.5)
    assert second.gpus[0].throttle_reasons == ["sw_power_cap"]


def test_health_is_counted_since_the_last_trouble() -> None:
    """No age of health while something is wrong; afterwards it counts from there."""
    world = World(2)
    world.step()
    world.advance(10.0, moving=True)
    assert world.overview().healthy_s == pytest.approx(10.2, abs=0.1)
    world.stop(1)
    assert world.overview().healthy_s is None
    assert world.overview().findings == {"info": 0, "warning": 0, "critical": 1}
    world.cont(1)
    world.tick()
    world.advance(5.0, moving=True)
    assert world.overview().healthy_s == pytest.approx(5.0, abs=0.1)
    assert world.overview().incidents == 1, "one that opened and closed is one"


def test_the_verdict_is_the_gravest_finding() -> None:
    """A warning that came first does not hide a critical one."""
    world = World(4)
    world.step()
    world.ranks[0].mute = True
    world.advance(8.0, moving=True)
    world.stop(1)
    status = world.status()
    assert [f.kind for f in status.findings] == ["rank-stopped", "link-lost"]
    assert status.verdict == status.findings[0]


def test_a_run_starts_without_ranks() -> None:
    """Before the first hello there is an empty view, not an error."""
    world = World(2, hello=False)
    status = world.status()
    assert (status.state, status.ranks, status.world_size) == ("starting", [], 0)
    overview = world.overview()
    assert (overview.up_s, overview.healthy_s, overview.data_age_s) == (0.0, None, None)


def test_a_large_world_fits_into_one_reply() -> None:
    """16,384 rows are below the clients' limit."""
    world = World(1)
    world.hello(0, world_size=16_384)
    assert len(world.view("status").ranks) == 16_384


def test_a_resumed_run_starts_where_it_left_off() -> None:
    """start_step is the step of a rank that has completed none yet."""
    world = World(2, hello=False)
    for rank in (0, 1):
        world.hello(rank, start_step=100)
        world.ranks[rank].step = 100
    assert world.status().step == 100
    world.advance(20.0)
    assert world.status().state == "starting"
    world.step()
    assert (world.status().step, world.overview().history.step) == (101, [101])


def test_a_new_attempt_replaces_the_steps_it_does_again() -> None:
    """History goes on across attempts, each step once, the newest value."""
    world = World(1)
    for _ in range(5):
        world.step(loss=1.0)
    world.new_attempt()
    for _ in range(3):
        world.step(loss=2.0)
    history = world.overview().history
    assert (history.step, history.loss) == ([1, 2, 3], [2.0, 2.0, 2.0])
    assert world.overview().attempt == 1


def test_messages_of_an_earlier_attempt_change_nothing() -> None:
    """A beat that was on its way when the ranks were restarted is no news."""
    world = World(1)
    world.step()
    world.new_attempt()
    before = world.view("status").ranks
    beat = m.Beat(0, 0, 99, 0.0, 77, 1, m.Phase.DATA, 0.0, 500)
    world.send(beat)
    assert world.view("status").ranks == before


def test_a_rank_attached_again_begins_anew() -> None:
    """A second script under one launcher is the same rank with another process."""
    world = World(1)
    for _ in range(3):
        world.step()
    world.finish(0)
    sim = world.ranks[0]
    sim.seq, sim.pid, sim.step, sim.over, sim.state = 0, 4000, 0, False, "alive"
    world.hello(0)
    world.step()
    status = world.status()
    assert (status.state, status.step, status.ranks[0].missed) == ("running", 1, 0)
    assert status.ranks[0].pid == 4000


def test_commands_are_answered_in_words() -> None:
    """What cannot be had now says why, what does not exist too; a live run's hub is not ended."""
    world = World(1)
    world.step()

    def command(name: str) -> m.CommandReply:
        world.core.outbox.clear()
        request = codec.encode(m.CommandRequest(3, name, "ada"))
        world.core.receive(b"o", "operator", request, world.now_s)
        reply = codec.decode(world.core.outbox.pop()[1])
        assert isinstance(reply, m.CommandReply)
        assert reply.request == 3
        return reply

    for name in ("checkpoint", "pause", "stop"):
        assert command(name).text == "rank 0 gave no boundary yet: no call of end_step"
    assert command("resume").text == "the run is not paused"
    assert "nothing to cancel" in command("cancel").text
    assert "no command 'dance'" in command("dance").text
    assert not command("end-hub").accepted
    world.run_end(0)
    assert command("end-hub").accepted
    assert world.core.end_asked


def test_sentinels_are_told_when_the_run_is_over() -> None:
    """At the launcher's word, and whoever speaks later again."""
    world = World(4, per_node=2)
    world.replies()
    world.run_end(0)
    told = [peer for peer, message in world.replies() if isinstance(message, m.RunOver)]
    assert sorted(told) == [b"node-0", b"node-1"]
    world.report("node-1")
    assert [type(message) for _, message in world.replies()] == [m.RunOver]


def test_a_stranger_is_asked_who_it_is_once_a_second() -> None:
    """Beats without a hello are answered with a question, not with a flood of them."""
    world = World(2, hello=False)
    for _ in range(5):
        world.beat(1)
    assert world.replies() == [(b"rank 1", m.WhoAreYou(1))]
    world.now_s += 1.1
    world.beat(1)
    assert world.replies() == [(b"rank 1", m.WhoAreYou(1))]
    world.hello(1)
    world.beat(1)
    assert world.replies() == []
    world.report("node-0")
    assert world.replies() == [(b"node-0", m.WhoAreYou(-1))]


@pytest.mark.parametrize(
    ("role", "frame"),
    [
        ("viewer", codec.encode(m.RunEnd(0))),
        ("operator", codec.encode(m.RunEnd(0))),
        ("viewer", codec.encode(m.CommandRequest(1, "end-hub", "eve"))),
        ("agent", codec.encode(m.ViewRequest(1, "status"))),
        ("agent", codec.encode(m.RunOver())),
        ("", codec.encode(m.Ping(1.0))),
    ],
)
def test_a_key_may_send_only_what_its_role_may(role: str, frame: bytes) -> None:
    """Everything else is refused in words, counted, and changes nothing."""
    world = World(1)
    world.replies()
    before = world.view("status")
    world.core.receive(b"x", role, frame, world.now_s)
    ((peer, reply),) = world.replies()
    assert peer == b"x"
    assert isinstance(reply, m.Refused)
    assert "may not send" in reply.text
    assert world.view("status") == before
    assert world.overview().bad_frames == 1


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"RS",
        b"GET / HTTP/1.1",
        b"RS\x01\x02",
        b"RS\x01\x02\x93\x01\x02",
        codec.encode(m.Beat(0, 5, 1, 0.0, 1, 1, m.Phase.DATA, 0.0, 1)),
        codec.encode(m.Hello(0, 3, 1, 0.0, RUN, 3, 0, "h", 1, "n", "ddp", "cpu", 0, False, {})),
        codec.encode(m.Hello(0, 0, 1, 0.0, "other", 3, 0, "h", 1, "n", "ddp", "cpu", 0, False, {})),
        codec.encode(m.ProcessEnded("n", 1, 0.0, 0, 0, 1, 1 << 63, None, False, 0.0, "x")),
    ],
)
def test_a_bad_frame_is_counted_and_changes_nothing(frame: bytes) -> None:
    """Nonsense, a rank beyond the world, another run, numbers that cannot be."""
    world = World(2)
    world.step()
    before = world.view("status")
    world.core.receive(b"x", "agent", frame, world.now_s)
    assert world.view("status") == before
    assert world.overview().bad_frames == 1


def test_another_major_is_refused_naming_both_versions() -> None:
    """The one message that peers of all versions can read."""
    world = World(1)
    world.replies()
    world.core.receive(b"x", "viewer", b"RS\x07\x20whatever", world.now_s)
    ((_, reply),) = world.replies()
    assert reply == m.Refused("this hub speaks protocol 1, you speak 7: use one version")


def test_an_unknown_kind_is_ignored() -> None:
    """A newer minor's message is no bad frame."""
    world = World(1)
    world.core.receive(b"x", "agent", b"RS\x01\x30\x90", world.now_s)
    assert (world.state.unknown_kinds, world.overview().bad_frames) == (1, 0)


def test_pings_are_answered_with_the_hubs_clock() -> None:
    """Whoever asks, with its own time given back."""
    world = World(1)
    world.replies()
    for role in ("agent", "viewer", "operator"):
        world.core.receive(b"x", role, codec.encode(m.Ping(3.5)), world.now_s)
    assert world.replies() == [(b"x", m.Pong(3.5, world.now_s))] * 3
