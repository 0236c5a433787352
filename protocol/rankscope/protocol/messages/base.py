"""What all messages have in common: the types of their fields, and how each sender's begin."""

from typing import Annotated

import msgspec
from msgspec import Meta

from rankscope.protocol import limits

Rank = Annotated[int, Meta(ge=0, lt=limits.MAX_WORLD_SIZE)]
Count = Annotated[int, Meta(ge=0, le=limits.MAX_COUNT)]
Bytes = Annotated[int, Meta(ge=0, le=limits.MAX_COUNT)]
Name = Annotated[str, Meta(max_length=limits.MAX_NAME_CHARS)]
Text = Annotated[str, Meta(max_length=limits.MAX_TEXT_CHARS)]
Traceback = Annotated[str, Meta(max_length=limits.MAX_TRACEBACK_CHARS)]


class Message(msgspec.Struct, array_like=True, frozen=True):
    """Base of all messages: an array on the wire, trailing unknown fields ignored."""


class FromRank(Message, frozen=True):
    """What every message of a rank starts with. ``seq`` counts from 1 for each (attempt, rank)."""

    attempt: Count
    rank: Rank
    seq: Count
    t_s: float


class FromNode(Message, frozen=True):
    """What every message of a sentinel starts with. ``node`` tells sentinels apart."""

    node: Name
    seq: Count
    t_s: float
