"""Process groups, and what the flight recorder of a rank has of their collectives."""

from typing import Annotated

from msgspec import Meta

from rankscope.protocol import limits
from rankscope.protocol.messages.base import Count, FromRank, Message, Name, Rank, Text


class CollectiveStatus(Message, frozen=True):
    """The flight recorder's sequence numbers for one process group; -1 where there is none."""

    group: Name
    last_enqueued: int
    last_started: int
    last_completed: int


class Group(Message, frozen=True):
    """A process group: ``name`` is the same on all members, ``description`` is the user's."""

    name: Name
    description: Name
    backend: Name
    size: Count
    ranks: Annotated[tuple[Rank, ...], Meta(max_length=limits.MAX_GROUP_RANKS)]
    """Global ranks; empty for a group larger than a frame allows."""


class Groups(FromRank, frozen=True):
    """The process groups this rank is in; sent when they change."""

    groups: Annotated[tuple[Group, ...], Meta(max_length=limits.MAX_GROUPS)]


class Operation(Message, frozen=True):
    """One collective as the flight recorder of a rank has it."""

    group: Name
    seq: Count
    """Counts the group's collectives, from 1 as torch numbers them."""
    name: Name
    """``gloo:all_reduce``, ``nccl:_all_gather_base``, …"""
    sizes: Name
    """Of inputs and outputs, in words: ``[1024] -> [1024]``."""
    dtype: Name
    state: Name
    """``scheduled``, ``started`` or ``completed``, as far as the backend tells them apart."""
    source: Text = ""
    """``file:line in function`` of the user's own code that called it, where known."""
    age_s: float | None = None
    """How long before this message it was called."""


class Operations(FromRank, frozen=True):
    """The newest collectives of this rank, oldest first, and how far each of its groups is.

    Read from the flight recorder once a stall is suspected, when asked, or when it raised.
    """

    why: Name
    statuses: Annotated[tuple[CollectiveStatus, ...], Meta(max_length=limits.MAX_GROUPS)]
    operations: Annotated[tuple[Operation, ...], Meta(max_length=limits.MAX_OPERATIONS)]
    note: Text = ""
    """Why there are none, in words, such as that the recorder is switched off."""
