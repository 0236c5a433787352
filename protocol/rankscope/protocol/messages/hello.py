"""How a rank comes and goes: its hello, what it raised, which probe failed, its goodbye."""

from typing import Annotated

from msgspec import Meta

from rankscope.protocol import limits
from rankscope.protocol.messages.base import Count, FromRank, Name, Rank, Text, Traceback
from rankscope.protocol.messages.beat import Phase


class Hello(FromRank, frozen=True):
    """Who this rank is. Sent first, and again when the hub asks ``WHO_ARE_YOU``."""

    run: Name
    world_size: Annotated[int, Meta(ge=1, le=limits.MAX_WORLD_SIZE)]
    local_rank: Rank
    host: Name
    pid: Count
    name: Name
    """What the user calls the run: the script's name unless told otherwise."""
    trainer: Name
    """``ddp``, ``fsdp2``, ``fsdp1`` or ``plain``: how the model is wrapped."""
    device: Name
    """``cpu`` or ``cuda:N``."""
    start_step: Count
    boundary: bool
    """Whether this loop calls ``end_step``; False until it has, and then a new hello is sent."""
    facts: Annotated[dict[Name, Text], Meta(max_length=limits.MAX_FACTS)]
    """Versions and settings, by name: ``python``, ``torch``, ``rankscope``, ``backend``, …"""


class Raised(FromRank, frozen=True):
    """An exception is about to end this rank."""

    type: Name
    message: Text
    traceback: Traceback
    source: Text
    """``file:line in function`` of the innermost frame of the user's own code."""
    step: Count
    """The last completed step: it raised in the one after."""
    phase: Phase
    from_peer: bool
    """The error says that another rank went away (connection reset, group timeout): a victim."""
    event_t_s: float


class ProbeFault(FromRank, frozen=True):
    """A probe failed and was switched off; training was not touched."""

    probe: Name
    error: Text
    step: Count
    """The last completed step."""


class Goodbye(FromRank, frozen=True):
    """The agent ends in an orderly way."""

    reason: Name
    """``finished``, ``exception``, or ``paused``: the rank goes on unobserved, for a while."""
    step: Count
    """The last completed step."""
    data_over: bool = False
    """As in a beat: it ended because it had no more data."""
