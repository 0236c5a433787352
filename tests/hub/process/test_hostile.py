"""Hostile bytes and peers that read nothing: the others go on."""

import os
import socket
import threading
from collections.abc import Callable

import pytest

from rankscope.protocol import codec, limits, shapes
from rankscope.protocol import messages as m
from support.wire import Hub, wait_until
from support.wirerank import Agent

pytestmark = pytest.mark.processes


def at_step(step: int) -> Callable[[shapes.Status], bool]:
    return lambda status: status.step == step


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
