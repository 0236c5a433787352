"""Who is let in to a real hub, and what each key may do."""

import contextlib

import pytest
import zmq

from rankscope.protocol import codec, keys
from rankscope.protocol import messages as m
from support.wire import Hub, Peer
from support.wirerank import Agent

pytestmark = pytest.mark.processes


def stranger(hub: Hub, **key: str) -> Peer:
    """A peer with keys of its own making."""
    pair = keys.new_pair()
    agent = hub.directory.read_key("agent")
    fields = {"public": pair.public, "secret": pair.secret, "hub_public": agent.hub_public} | key
    return Peer(hub.endpoint, keys.ClientKey("agent", agent.run, **fields))


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
