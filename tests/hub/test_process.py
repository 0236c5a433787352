"""A real hub process and real sockets: restarts, keys, hostile bytes, lifetimes."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from rankscope.protocol import codec, keys, limits, rundir, shapes
from rankscope.protocol import messages as m
from support.wire import Hub, Peer, hub_process, new_run, spawn, wait_until

pytestmark = pytest.mark.processes


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_process(tmp_path) as running:
        yield running


class Agent:
    """One rank on one connection."""

    def __init__(self, peer: Peer, rank: int = 0, world_size: int = 1) -> None:
        self.peer = peer
        self.rank = rank
        self.world_size = world_size
        self.seq = 0
        self.step = 0

    def send(self, message: type[m.FromRank], /, **fields: Any) -> None:
        self.seq += 1
        self.peer.send(
            message(
                attempt=0,
                rank=self.rank,
                seq=self.seq,
                t_s=time.monotonic(),
                **fields,
            )
        )

    def hello(self, run: str = "run-1") -> None:
        self.send(
            m.Hello,
            run=run,
            world_size=self.world_size,
            local_rank=self.rank,
            host="here",
            pid=os.getpid(),
            name="t",
            trainer="ddp",
            device="cpu",
            start_step=0,
            boundary=False,
            facts={},
        )

    def beat(self) -> None:
        self.step += 1
        now = time.monotonic()
        record = m.StepRecord(self.step, now, 0.1, 0.0, 0.1, 0.0, 0.0, 0.0, 1, 2.0, 10, 1.0)
        self.send(
            m.Beat,
            step=self.step,
            microbatch=1,
            phase=m.Phase.FORWARD,
            phase_t_s=now,
            activity=self.step,
            steps=(record,),
        )

    def goodbye(self) -> None:
        self.send(m.Goodbye, reason="finished", step=self.step)


def at_step(step: int) -> Callable[[shapes.Status], bool]:
    return lambda status: status.step == step


def stranger(hub: Hub, **key: str) -> Peer:
    """A peer with keys of its own making."""
    pair = keys.new_pair()
    agent = hub.directory.read_key("agent")
    fields = {"public": pair.public, "secret": pair.secret, "hub_public": agent.hub_public} | key
    return Peer(hub.endpoint, keys.ClientKey("agent", agent.run, **fields))


def test_a_hub_killed_hard_is_back_on_its_endpoint_with_its_state(hub: Hub) -> None:
    """kill -9: peers that stay connected go on, and what was lost meanwhile is counted."""
    with hub.connect("agent") as a, hub.connect("viewer") as client:
        rank = Agent(a)
        rank.hello()
        for _ in range(5):
            rank.beat()
        before = client.wait_for_view("status", lambda status: status.step == 5)
        endpoint, version = hub.endpoint, client.ask("status").version
        hub.kill()
        rank.seq += 3  # three messages that nobody will ever see
        hub.start()
        assert hub.endpoint == endpoint
        status = client.view("status")
        assert (status.step, status.name) == (5, before.name)
        rank.beat()
        status = client.wait_for_view("status", lambda status: status.step == 6)
        assert (status.ranks[0].missed, status.dropped) == (3, 3)
        assert client.ask("status").version > version
        overview = client.view("overview")
        assert overview.hub_restarts == 1
        assert overview.history.step == [1, 2, 3, 4, 5, 6]
        # The hub of before gave this version: the whole view comes, not a difference.
        body = client.ask("status", version).body
        assert msgspec.msgpack.decode(body, type=shapes.Status).full


def test_a_hub_that_was_stopped_accuses_nobody(hub: Hub) -> None:
    """SIGSTOP and SIGCONT of the hub: it was away itself, and nobody was silent to it."""
    with hub.connect("agent") as a, hub.connect("agent") as b, hub.connect("viewer") as client:
        for rank, peer in enumerate((a, b)):
            agent = Agent(peer, rank, world_size=2)
            agent.hello()
            agent.beat()
        client.wait_for_view("status", lambda status: [r.step for r in status.ranks] == [1, 1])
        assert hub.process is not None
        os.kill(hub.process.pid, signal.SIGSTOP)
        time.sleep(6.0)  # the very thing that is tested: longer than a silence that is a finding
        os.kill(hub.process.pid, signal.SIGCONT)
        deadline = time.monotonic() + 1.0  # later the ranks are silent in truth
        while time.monotonic() < deadline:
            status = client.view("status")
            assert status.findings == []
            assert {row.link for row in status.ranks} <= {"up", "silent"}
        assert client.view("incidents").incidents == []


def test_a_hub_that_lost_its_recording_asks_who_is_there(hub: Hub) -> None:
    """Peers introduce themselves again, and nothing else is needed."""
    with hub.connect("agent") as a, hub.connect("viewer") as client:
        rank = Agent(a)
        rank.hello()
        client.wait_for_view("status", lambda status: status.ranks)
        hub.kill()
        for path in hub.directory.recording.iterdir():
            path.unlink()
        hub.start()

        def asked() -> bool:
            rank.beat()
            return isinstance(a.receive(0.1), m.WhoAreYou)

        wait_until(asked, "the question who is there")
        rank.hello()
        status = client.wait_for_view("status", lambda s: s.ranks and s.ranks[0].host == "here")
        assert status.world_size == 1


def test_run_json_tells_where_the_hub_is_and_how_the_run_ended(hub: Hub) -> None:
    """Pid, start time, endpoint, world size while it lives; end and exit code afterwards."""
    info = hub.directory.read_info()
    assert hub.process is not None
    assert info.hub is not None
    assert info.hub.pid == hub.process.pid
    assert rundir.hub_is_alive(info)
    with hub.connect("agent") as a, hub.connect("operator") as client:
        Agent(a, world_size=3).hello()
        wait_until(lambda: hub.directory.read_info().world_size == 3, "the world size")
        a.send(m.RunEnd(3))
        client.wait_for_view("status", lambda status: status.state == "failed")
        assert client.command("end-hub").accepted
        assert hub.process.wait(60) == 0
    info = hub.directory.read_info()
    assert info.exit_code == 3
    assert info.ended_s is not None
    assert not rundir.hub_is_alive(info)


def test_a_term_signal_ends_it_in_order(hub: Hub) -> None:
    """The recording is whole, run.json tells the end, the exit code is 0."""
    with hub.connect("agent") as a, hub.connect("viewer") as client:
        Agent(a).hello()
        client.wait_for_view("status", lambda status: status.ranks)
    assert hub.terminate() == 0
    assert hub.directory.read_info().ended_s is not None
    assert "asked to end by SIGTERM" in hub.log()
    assert "Traceback" not in hub.log()


@pytest.mark.parametrize("wrong", ["client key", "hub key"])
def test_a_key_that_is_not_the_runs_is_not_let_in(hub: Hub, wrong: str) -> None:
    """Neither unknown clients nor clients of another hub hear a word."""
    key = {} if wrong == "client key" else {"hub_public": keys.new_pair().public}
    with hub.connect("viewer") as client, stranger(hub, **key) as other:
        client.ping()
        with contextlib.suppress(zmq.Again):  # turned away already: nobody takes it
            other.send(m.Ping(1.0))
        assert other.receive(0.5) is None
        assert client.view("overview").bad_frames == 0


def test_a_peer_without_encryption_is_not_let_in(hub: Hub) -> None:
    """A plain DEALER is turned away before anything of it is read."""
    context = zmq.Context()
    plain = context.socket(zmq.DEALER)
    plain.linger = 0
    try:
        plain.connect(hub.endpoint)
        plain.send(codec.encode(m.RunEnd(1)), zmq.NOBLOCK)
        assert not plain.poll(500)
        with hub.connect("viewer") as client:
            assert client.status().state == "starting"
    finally:
        plain.close()
        context.term()


def test_roles_hold_on_the_wire(hub: Hub) -> None:
    """A viewer cannot pose as a rank, nor an agent's key read, and both are told."""
    with hub.connect("viewer") as viewer, hub.connect("agent") as agent:
        Agent(viewer).hello()
        assert "may not send hello" in viewer.receive_kind(m.Refused).text
        viewer.send(m.CommandRequest(1, "end-hub", "eve"))
        assert "may not send command_request" in viewer.receive_kind(m.Refused).text
        agent.send(m.ViewRequest(1, "status"))
        assert "may not send view_request" in agent.receive_kind(m.Refused).text
        assert viewer.status().ranks == []
        assert viewer.view("overview").bad_frames == 3


def test_frames_that_are_none_leave_the_others_in_step(hub: Hub) -> None:
    """Multipart, empty, oversized, of another major: each dropped, the next one understood."""
    with hub.connect("viewer") as client, hub.connect("agent") as other:
        other.send_bytes(b"a", b"b", b"c")
        other.send_bytes(b"")
        other.send_bytes(b"", codec.encode(m.RunEnd(1)))
        other.send_bytes(b"RS\x09\x02abc")
        assert "you speak 9" in other.receive_kind(m.Refused).text
        other.ping()
        other.send_bytes(b"x" * limits.MAX_INBOUND_FRAME_BYTES)
        other.ping()
        status = client.status()
        assert status.state == "starting"
        assert client.view("overview").bad_frames == 5


def test_a_frame_beyond_the_limit_ends_its_connection_only(hub: Hub) -> None:
    """The socket refuses it unread; its sender reconnects, others notice nothing."""
    with hub.connect("viewer") as client, hub.connect("agent") as other:
        client.ping()
        other.ping()
        other.send_bytes(b"x" * (4 * limits.MAX_INBOUND_FRAME_BYTES))

        def back() -> bool:
            other.send(m.Ping(2.0))
            return other.receive(0.2) is not None

        wait_until(back, "the reconnection")
        assert client.view("overview").bad_frames == 0


def test_random_bytes_at_the_port_change_nothing_for_anyone(hub: Hub) -> None:
    """While they pour in, a rank and a client go on, and nothing of them is seen."""
    host, port = hub.endpoint.removeprefix("tcp://").rsplit(":", 1)
    done = threading.Event()

    def pour() -> None:
        while not done.is_set():
            try:
                with socket.create_connection((host, int(port)), timeout=5) as raw:
                    raw.settimeout(0.2)
                    raw.sendall(os.urandom(4096))
                    raw.sendall(b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00CURVE")
                    raw.recv(100)
            except OSError:
                continue

    threads = [threading.Thread(target=pour) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        with hub.connect("agent") as a, hub.connect("viewer") as client:
            rank = Agent(a)
            rank.hello()
            for step in range(1, 31):
                rank.beat()
                client.wait_for_view("status", at_step(step))
            overview = client.view("overview")
            assert (overview.bad_frames, overview.dropped) == (0, 0)
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_a_client_that_reads_nothing_loses_only_its_own_replies(hub: Hub) -> None:
    """Its replies are dropped beyond a bound; another client is answered as ever."""
    with hub.connect("viewer") as lazy, hub.connect("viewer") as client:
        with hub.connect("agent") as a:
            Agent(a, world_size=2000).hello()
            client.wait_for_view("status", lambda status: status.world_size == 2000)
        lazy.socket.rcvhwm = 1
        for number in range(300):
            lazy.send(m.ViewRequest(number, "status"))
        client.ping()
        assert client.status().world_size == 2000


def failed_start(directory: rundir.RunDirectory, *options: str) -> tuple[int, str]:
    """The exit code and the words of a hub that must not start."""
    process = spawn(directory, *options)
    code = process.wait(60)
    return code, directory.log.read_text().strip().splitlines()[-1]


def test_a_second_hub_for_a_run_is_refused(hub: Hub) -> None:
    """One line, exit 2, and the first one goes on."""
    code, words = failed_start(hub.directory)
    assert code == 2
    assert words == f"run run-1 has a hub already (pid {hub.info.hub.pid}); one is enough"  # type: ignore[union-attr]
    with hub.connect("viewer") as client:
        client.ping()


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    """Which port, and what to do about it."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, words = failed_start(new_run(tmp_path), "--port", str(port))
    assert code == 2
    assert words.startswith(f"port {port} on 127.0.0.1 is in use")
    assert "--port" in words


def test_an_address_that_is_not_this_machines_is_said(tmp_path: Path) -> None:
    """One line, exit 2."""
    code, words = failed_start(new_run(tmp_path), "--bind", "192.0.2.77")
    assert code == 2
    assert words.startswith("cannot listen on 192.0.2.77")


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_a_port_that_is_none_is_said(tmp_path: Path, port: str) -> None:
    """Usage, exit 2."""
    code, words = failed_start(new_run(tmp_path), f"--port={port}")
    assert code == 2
    assert "is no port" in words


def test_a_run_directory_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """Keys are in it."""
    directory = new_run(tmp_path)
    directory.path.chmod(0o755)
    code, words = failed_start(directory)
    assert code == 2
    assert "chmod go-rwx" in words


def test_a_missing_run_is_said(tmp_path: Path) -> None:
    """One line on stderr, no traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "rankscope.hub", "--run-dir", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("no run none at")
    assert len(done.stderr.splitlines()) == 1


# --- lifetimes -------------------------------------------------------------------------------


def test_it_ends_when_the_ranks_have_ended_and_no_client_is_left(tmp_path: Path) -> None:
    """Not before, and with exit code 0."""
    with hub_process(tmp_path, "--linger-s=0.5", "--client-left-s=5") as hub:
        assert hub.process is not None
        with hub.connect("agent") as a, hub.connect("viewer") as client:
            client.ping()  # it is there before the ranks have ended
            rank = Agent(a)
            rank.hello()
            rank.beat()
            rank.goodbye()
            client.wait_for_view("status", lambda status: status.state == "finished")
            deadline = time.monotonic() + 1.5
            while time.monotonic() < deadline:  # a client that asks keeps it
                assert client.view("status").ranks is not None
                assert hub.process.poll() is None
                time.sleep(0.1)
        assert hub.process.wait(60) == 0
        assert "all ranks have ended and no client is left" in hub.log()


def test_it_ends_soon_after_the_launchers_word(tmp_path: Path) -> None:
    """When no client has asked for a while; the sentinel is told at once."""
    with hub_process(tmp_path, "--after-run-end-s=0.3") as hub, hub.connect("agent") as sentinel:
        assert hub.process is not None
        hello = m.NodeHello("here:1", 1, 0.0, "run-1", "here", 1, "", "", {})
        sentinel.send(hello)
        sentinel.ping()  # the hub knows it
        with hub.connect("agent") as launcher:
            launcher.send(m.RunEnd(0))
        assert sentinel.receive_kind(m.RunOver) == m.RunOver()
        assert hub.process.wait(60) == 0
    assert hub.directory.read_info().exit_code == 0


def test_it_does_not_wait_for_ever_for_a_first_rank(tmp_path: Path) -> None:
    """Nobody came, nobody asks: it ends by itself."""
    with hub_process(tmp_path, "--nobody-s=3", "--client-left-s=0.2") as hub:
        assert hub.process is not None
        assert hub.process.wait(60) == 0
        assert "no rank was heard of" in hub.log()


# --- replay ----------------------------------------------------------------------------------


def test_an_ended_run_is_answered_from_its_directory(hub: Hub) -> None:
    """Replay gives the views of the live hub, with keys of its own, until stdin closes."""
    with hub.connect("agent") as a, hub.connect("operator") as client:
        rank = Agent(a, world_size=2)
        rank.hello()
        for _ in range(3):
            rank.beat()
        rank.send(
            m.Raised,
            type="ValueError",
            message="no",
            traceback="Traceback …",
            source="t.py:1 in f",
            step=3,
            phase=m.Phase.FORWARD,
            from_peer=False,
            event_t_s=time.monotonic(),
        )
        rank.send(m.Goodbye, reason="exception", step=3)
        a.send(m.RunEnd(1))
        live = client.wait_for_view(
            "status", lambda status: status.state == "failed" and status.findings
        )
        page, incidents = client.view("rank", rank=0), client.view("incidents")
        client.command("end-hub")
        assert hub.process is not None
        assert hub.process.wait(60) == 0
    replay = subprocess.Popen(
        [sys.executable, "-m", "rankscope.hub", "--replay", str(hub.directory.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert replay.stdin is not None
    assert replay.stdout is not None
    try:
        line = json.loads(replay.stdout.readline())
        key = msgspec.convert(line["key"], keys.ClientKey)
        assert key.public not in hub.directory.read_info().public_keys.values()
        with Peer(line["endpoint"], key) as client:
            status = client.status()
            assert (status.state, status.step, status.exit_code) == ("failed", 3, 1)
            assert status.verdict is not None
            assert live.verdict is not None
            assert status.verdict.headline == live.verdict.headline
            assert client.view("rank", rank=0).exception == page.exception
            assert client.view("incidents") == incidents
            first = client.ask("overview")
            second = client.ask("overview")
            assert first.hub_s == second.hub_s
            assert first.body == second.body
    finally:
        replay.stdin.close()
        assert replay.wait(60) == 0
        replay.stdout.close()


def test_a_run_that_never_was_recorded_can_still_be_opened(tmp_path: Path) -> None:
    """An empty directory gives an empty view."""
    directory = new_run(tmp_path)
    replay = subprocess.Popen(
        [sys.executable, "-m", "rankscope.hub", "--replay", str(directory.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert replay.stdin is not None
    assert replay.stdout is not None
    try:
        line = json.loads(replay.stdout.readline())
        with Peer(line["endpoint"], msgspec.convert(line["key"], keys.ClientKey)) as client:
            assert client.status().ranks == []
    finally:
        replay.send_signal(signal.SIGTERM)
        assert replay.wait(60) == 0
        replay.stdin.close()
        replay.stdout.close()
