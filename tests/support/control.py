"""Operators and ranks that talk of requests, in a simulated world."""

from typing import Any

from rankscope.hub.core import Core
from rankscope.protocol import codec
from rankscope.protocol import messages as m
from support.world import World


def controlled(world: World, rank: int, phase: str = "idle", **fields: Any) -> None:
    """A rank's word on a request."""
    told: dict[str, Any] = {"phase": phase, "phase_t_s": world.now_s + world.ranks[rank].clock_s}
    if fields.get("request"):
        told |= {"command": "checkpoint", "author": "ada@laptop"}
    world.from_rank(rank, m.Controlled, **(told | fields))


def command(
    world: World, name: str, author: str = "ada@laptop", **args: int | str
) -> m.CommandReply:
    """What the hub answers to an operator who gives a command."""
    frame = codec.encode(m.CommandRequest(1, name, author, args))
    world.core.receive(b"client", "operator", frame, world.now_s)
    replies = [codec.decode(f) for peer, f in world.core.outbox if peer == b"client"]
    reply = replies[-1]
    assert isinstance(reply, m.CommandReply)
    return reply


def orders(core: Core) -> dict[str, m.Order]:
    """What the hub has told the ranks since it was asked last."""
    found = {}
    for peer, frame in core.outbox:
        message = codec.decode(frame)
        if isinstance(message, m.Order):
            found[peer.decode()] = message
    core.outbox.clear()
    return found
