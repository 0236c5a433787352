"""Of the run as a whole and of the connection: the clock, who is known, and that it is over."""

from typing import Annotated

from msgspec import Meta

from rankscope.protocol.messages.base import Message, Name, Rank, Text


class RunEnd(Message, frozen=True):
    """``rankscope run`` saw its command end: nothing of this run will come any more."""

    exit_code: int
    signal: int | None = None
    """What ended the command itself."""
    asked: int | None = None
    """The newest signal by which ``rankscope run`` was asked to end it, if it was."""


class Ping(Message, frozen=True):
    """From anyone. The hub answers at once with a pong."""

    t_s: float


class Pong(Message, frozen=True):
    t_s: float
    """The ping's own."""
    hub_s: float
    """The hub's clock (Unix time, seconds)."""


class Refused(Message, frozen=True):
    """The hub will not talk to this peer, and why. Its layout is the same in all majors."""

    text: Text


class WhoAreYou(Message, frozen=True):
    """The hub does not know this rank or node (it may have restarted): send your hello again.

    ``rank`` is -1 for a sentinel."""

    rank: int


class RunOver(Message, frozen=True):
    """To sentinels: the launcher has said that the run ended; nothing remains to be watched."""


class Inquire(Message, frozen=True):
    """The hub wants to know more of a rank. Answered from the agent's own thread, not by training.

    To an agent (``stacks``, ``operations``, ``checksums``, ``parameter_norms``) or to a sentinel
    (``foreign_stacks`` of that rank).
    """

    rank: Rank
    what: Annotated[tuple[Name, ...], Meta(max_length=8)]
