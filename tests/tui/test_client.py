"""The hub client and the poller against a real hub."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import zmq

from rankscope.protocol import codec, keys
from rankscope.protocol import messages as m
from rankscope.protocol.exits import UserError
from rankscope.protocol.shapes import Incidents, Numerics, Overview, Status
from rankscope.tui.feed import client as feed
from rankscope.tui.feed.client import HubClient
from rankscope.tui.feed.link import LinkError
from rankscope.tui.feed.poller import Poller, Snapshot, Wanted
from support.ports import free_port
from support.wire import Hub, Peer, hub_process, wait_until

pytestmark = pytest.mark.processes

PATIENCE_S = 1.0
"""Of a client that gets no core for so long."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_process(tmp_path) as hub:
        yield hub


def client_of(hub: Hub) -> HubClient:
    return HubClient(hub.endpoint, hub.directory.read_key("operator"))


def hello(rank: int, seq: int = 1) -> m.Hello:
    return m.Hello(
        attempt=0,
        rank=rank,
        seq=seq,
        t_s=time.monotonic(),
        run="run-1",
        world_size=2,
        local_rank=rank,
        host="here",
        pid=100_000 + rank,
        name="test",
        trainer="plain",
        device="cpu",
        start_step=0,
        boundary=True,
        facts={},
    )


def beat(rank: int, seq: int, step: int) -> m.Beat:
    now_s = time.monotonic()
    return m.Beat(0, rank, seq, now_s, step, 1, m.Phase.FORWARD, now_s, seq)


def join(peer: Peer, rank: int, step: int) -> None:
    peer.send(hello(rank))
    peer.send(beat(rank, 2, step))


def test_a_client_gets_views_and_then_what_changed(hub: Hub) -> None:
    """In full at first; with the version it has, nothing or the changed rows."""
    with client_of(hub) as client, hub.connect("agent") as ranks:
        join(ranks, 0, 5)
        join(ranks, 1, 7)

        def both() -> Status | None:
            body = client.ask("status").body
            assert isinstance(body, Status)
            return body if [row.step for row in body.ranks] == [5, 7] else None

        wait_until(both, "both ranks")
        assert isinstance(client.ask("overview").body, Overview)


def test_a_view_or_rank_that_is_not_there_is_told(hub: Hub) -> None:
    """In the hub's words; the connection goes on."""
    with client_of(hub) as client:
        with pytest.raises(UserError):
            client.ask("no-such-view")
        with pytest.raises(UserError):
            client.ask("rank", args={"rank": 99})
        client.ask("status")


def test_a_client_lives_through_a_restart_of_its_hub(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question is asked again by itself; the answer is the new hub's."""
    monkeypatch.setattr(feed, "NOBODY_PATIENCE_S", 100.0)  # a busy machine starts no hub in 2 s
    with client_of(hub) as client:
        client.ask("status")
        hub.kill()
        starter = threading.Thread(target=hub.start)
        starter.start()
        try:
            assert client.ask("status", timeout_s=120).body is not None
        finally:
            starter.join()


def test_a_hub_that_is_gone_is_told_within_patience(hub: Hub) -> None:
    """Not after the whole timeout: a closed port is a fact."""
    with client_of(hub) as client:
        client.ask("status")
        hub.kill()
        with pytest.raises(LinkError) as caught:
            client.ask("status", timeout_s=60)
        assert caught.value.cause == "nobody"


def test_a_command_that_cannot_be_followed_is_answered_in_words(hub: Hub) -> None:
    """The operator's key may ask; the viewer's may not even ask."""
    with client_of(hub) as client:
        answer = client.command("pause", author="test")
        assert not answer.accepted
        assert "gave no boundary" in answer.text
    with (
        HubClient(hub.endpoint, hub.directory.read_key("viewer")) as viewer,
        pytest.raises(LinkError) as caught,
    ):
        viewer.command("checkpoint", author="test")
    assert caught.value.cause == "refused"


def test_a_command_to_a_hub_that_is_stopped_says_whether_it_was_given(hub: Hub) -> None:
    """One that never left cannot be carried out; of one that did nobody knows."""
    assert hub.process is not None
    with client_of(hub) as known:
        known.ask("status")
        hub.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(LinkError, match="whether it took the command is unknown"):
                known.command("stop", author="test", timeout_s=0.5)
            with (
                client_of(hub) as stranger,
                pytest.raises(LinkError, match="the command was not given"),
            ):
                stranger.command("stop", author="test", timeout_s=0.5)
        finally:
            hub.process.send_signal(signal.SIGCONT)


def test_a_run_end_is_known_when_sending_returns(hub: Hub) -> None:
    """The launcher's last message is read before its pong."""
    with HubClient(hub.endpoint, hub.directory.read_key("agent")) as launcher:
        launcher.send(m.RunEnd(3))
    with client_of(hub) as client:
        body = client.ask("status").body
        assert isinstance(body, Status)
        assert (body.state, body.exit_code) == ("failed", 3)


@contextmanager
def hub_that_answers(pair: keys.KeyPair, answer: bytes) -> Iterator[str]:
    """A stranger's hub: has the right key and answers every frame with ``answer``."""
    stop = threading.Event()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.linger = 0
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = pair.public.encode(), pair.secret.encode()
        port = free_port()
        socket.bind(f"tcp://127.0.0.1:{port}")

        def serve() -> None:
            while not stop.is_set():
                if socket.poll(20):
                    socket.send_multipart([socket.recv_multipart()[0], answer])

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{port}"
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            b"RS\x02\x43" + msgspec.msgpack.encode(["this hub speaks protocol 2, you speak 1"]),
            "this hub speaks protocol 2",
        ),
        (b"RS\x02\x41" + msgspec.msgpack.encode(["anything"]), "speaks protocol 2"),
    ],
)
def test_a_hub_of_another_major_version_is_told(answer: bytes, words: str) -> None:
    """Whether it refuses in its own words or just answers: exit 3, no riddle."""
    pair, mine = keys.new_pair(), keys.new_pair()
    key = keys.ClientKey("viewer", "run-1", mine.public, mine.secret, pair.public)
    with hub_that_answers(pair, answer) as endpoint, HubClient(endpoint, key) as client:
        with pytest.raises(LinkError, match=words) as caught:
            client.ask("status")
        assert (caught.value.cause, caught.value.exit_code) == ("refused", 3)


@pytest.mark.parametrize("answer", [b"", b"\x00" * 100, b"RS\x01\x41\xc1", b"RS\x01\xff"])
def test_nonsense_is_no_answer(answer: bytes) -> None:
    """Frames that cannot be read are passed over; then the answer is missing: exit 4."""
    pair, mine = keys.new_pair(), keys.new_pair()
    key = keys.ClientKey("viewer", "run-1", mine.public, mine.secret, pair.public)
    with hub_that_answers(pair, answer) as endpoint, HubClient(endpoint, key) as client:
        with pytest.raises(LinkError) as caught:
            client.ask("status", timeout_s=1.0)
        assert (caught.value.cause, caught.value.exit_code) == ("silent", 4)


@pytest.mark.parametrize("kind", ["view", "command"])
def test_an_answer_that_has_come_counts_however_late_it_is_looked_for(kind: str) -> None:
    """A client's process that got no core for as long as it would have waited: the hub was not
    silent."""
    pair, mine = keys.new_pair(), keys.new_pair()
    key = keys.ClientKey("operator", "run-1", mine.public, mine.secret, pair.public)
    nothing = msgspec.Raw(b"\xc0")
    if kind == "view":
        reply: m.Message = m.ViewReply(1, "status", 1, 7.0, False, nothing)
    else:
        reply = m.CommandReply(1, True, "asked 2 ranks to stop")
    with (
        hub_that_answers(pair, codec.encode(reply)) as endpoint,
        HubClient(endpoint, key) as client,
    ):
        poll = client._poller.poll

        def gets_no_core(timeout_ms: int) -> Any:
            if dict(client._poller.sockets)[client._socket] & zmq.POLLOUT:
                return poll(timeout_ms)  # nothing was asked yet
            assert client._socket.poll(60_000)
            time.sleep(PATIENCE_S)
            return []

        client._poller.poll = gets_no_core  # type: ignore[method-assign, assignment]
        if kind == "view":
            assert client.ask("status", timeout_s=PATIENCE_S).hub_s == 7.0
        else:
            assert client.command("stop", author="ada", timeout_s=PATIENCE_S).accepted


def test_a_hub_that_was_slow_has_as_long_to_come_back_as_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long it had been waited for before it went: that there is nobody counts from when
    there is nobody."""
    waited_s = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + waited_s[0])
    monkeypatch.setattr(feed, "time", clock)
    monkeypatch.setattr(feed, "NOBODY_PATIENCE_S", 60.0)
    pair, mine, port = keys.new_pair(), keys.new_pair(), free_port()
    endpoint = f"tcp://127.0.0.1:{port}"
    key = keys.ClientKey("viewer", "run-1", mine.public, mine.secret, pair.public)
    reply = codec.encode(m.ViewReply(1, "status", 1, 7.0, False, msgspec.Raw(b"\xc0")))

    def serve(client: HubClient, bound: threading.Event, heard: threading.Event) -> None:
        with zmq.Context() as context:
            for answers in (False, True):
                with context.socket(zmq.ROUTER) as socket:
                    socket.linger, socket.rcvtimeo = 1000, 60_000
                    socket.curve_server = True
                    socket.curve_publickey = pair.public.encode()
                    socket.curve_secretkey = pair.secret.encode()
                    wait_until(lambda: bind(socket, endpoint), "the port")
                    bound.set()
                    peer = socket.recv_multipart()[0]
                    if answers:  # what a client has not read goes with the connection
                        socket.send_multipart([peer, reply])
                        assert heard.wait(60)
                    waited_s[0] = 1000.0
                if not answers:
                    wait_until(lambda: client._link.nobody, "the loss of the hub")

    with HubClient(endpoint, key) as client:
        bound, heard = threading.Event(), threading.Event()
        hub = threading.Thread(target=serve, args=(client, bound, heard), daemon=True)
        hub.start()
        try:
            assert bound.wait(60)
            assert client.ask("status", timeout_s=1e5).hub_s == 7.0
        finally:
            heard.set()
            hub.join(60)


def bind(socket: Any, endpoint: str) -> bool:
    """Whether it is bound; the one before may not have let go of the port."""
    try:
        socket.bind(endpoint)
    except zmq.ZMQError:
        return False
    return True


class Newest:
    """Keeps the newest snapshot, as a screen would."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.count = 0

    def __call__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.count += 1

    def shows(self, kind: type[object]) -> bool:
        return self.snapshot is not None and isinstance(self.snapshot.view, kind)

    def is_up(self) -> bool:
        """On a busy machine an answer may be late once."""
        return self.snapshot is not None and self.snapshot.link == "up"


@pytest.fixture
def newest() -> Newest:
    return Newest()


@pytest.fixture
def poller(hub: Hub, newest: Newest) -> Iterator[Poller]:
    poller = Poller(lambda: client_of(hub), 0.02, newest)
    poller.start()
    yield poller
    poller.stop()


@pytest.mark.usefixtures("poller")
def test_a_poller_follows_the_run(hub: Hub, newest: Newest) -> None:
    """Each snapshot is whole, whatever the hub sent of it."""
    with hub.connect("agent") as ranks:
        join(ranks, 0, 5)
        join(ranks, 1, 7)
        for step in (8, 9):
            ranks.send(beat(1, step - 5, step))

            def seen(step: int = step) -> bool:
                status = newest.snapshot.status if newest.snapshot else None
                return status is not None and [row.step for row in status.ranks] == [5, step]

            wait_until(seen, f"rank 1 at step {step}")
    wait_until(newest.is_up, "the link")
    assert newest.snapshot is not None
    assert newest.snapshot.overview is not None


@pytest.mark.usefixtures("poller")
def test_a_poller_says_that_the_hub_is_away_and_comes_back(hub: Hub, newest: Newest) -> None:
    """What was known stays on screen, with its age; then the link is up again by itself."""
    wait_until(lambda: newest.snapshot and newest.snapshot.link == "up", "the link")
    hub.kill()
    wait_until(
        lambda: newest.snapshot and newest.snapshot.link == "away" and newest.snapshot.age_s > 0,
        "away",
    )
    away = newest.snapshot
    assert away is not None
    assert away.status is not None
    assert away.error
    hub.start()
    wait_until(lambda: newest.snapshot and newest.snapshot.link == "up", "the link again")


def test_a_poller_brings_the_rank_that_is_looked_at(
    hub: Hub, newest: Newest, poller: Poller
) -> None:
    """Details only of the one asked for, and no more once it is not looked at."""
    with hub.connect("agent") as ranks:
        join(ranks, 1, 7)
        poller.request_rank(1)
        wait_until(lambda: newest.snapshot and newest.snapshot.rank, "the rank")
        poller.request_rank(None)
        wait_until(lambda: newest.snapshot and newest.snapshot.rank is None, "no rank")
        poller.request_rank(77)  # no such rank: the link stays up
        seen = newest.count
        wait_until(lambda: newest.count > seen + 3, "more snapshots")
        wait_until(newest.is_up, "the link")


def test_a_poller_brings_the_view_a_screen_wants(hub: Hub, newest: Newest, poller: Poller) -> None:
    """Only while it is wanted; one of a rank that is not there leaves the link up."""
    with hub.connect("agent") as ranks:
        join(ranks, 1, 7)
        poller.request_view(Wanted("numerics"))
        wait_until(lambda: newest.shows(Numerics), "the view")
        poller.request_view(Wanted("numerics", 77))
        wait_until(lambda: newest.snapshot and newest.snapshot.view is None, "no such rank")
        wait_until(newest.is_up, "the link")
        poller.request_view(Wanted("incidents"))
        wait_until(lambda: newest.shows(Incidents), "another view")
        poller.request_view(None)
        wait_until(lambda: newest.snapshot and newest.snapshot.view is None, "no view")


def test_a_slow_screen_is_asked_for_less(hub: Hub) -> None:
    """While a snapshot is being taken nothing is asked, and nothing queues up behind it."""
    release = threading.Event()
    taken: list[Snapshot] = []

    def slow(snapshot: Snapshot) -> None:
        taken.append(snapshot)
        release.wait(200)

    poller = Poller(lambda: client_of(hub), 0.01, slow)
    poller.start()
    try:
        wait_until(lambda: taken, "the first snapshot")
        with client_of(hub) as other:
            for _ in range(5):
                other.ask("status")
        assert len(taken) == 1
    finally:
        release.set()
        poller.stop()


def test_a_poller_without_a_hub_says_why(newest: Newest) -> None:
    """From the first moment, and it keeps trying."""

    def connect() -> HubClient:
        raise UserError("no run here")

    poller = Poller(connect, 0.01, newest)
    poller.start()
    try:
        wait_until(lambda: newest.count > 2, "tries")
        assert newest.snapshot is not None
        assert (newest.snapshot.link, newest.snapshot.error) == ("away", "no run here")
        assert newest.snapshot.status is None
    finally:
        poller.stop()
