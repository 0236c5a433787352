"""What dashboards and commands ask of the hub, and its replies."""

from typing import Annotated

import msgspec
from msgspec import Meta

from rankscope.protocol.messages.base import Count, Message, Name, Text


class ViewRequest(Message, frozen=True):
    request: Count
    view: Name
    since: Count = 0
    """The version the client has; 0 for none. The reply leaves out what has not changed since."""
    args: Annotated[dict[Name, int | str], Meta(max_length=16)] = {}


class CommandRequest(Message, frozen=True):
    request: Count
    command: Name
    author: Name
    args: Annotated[dict[Name, int | str], Meta(max_length=16)] = {}


class ViewReply(Message, frozen=True):
    request: Count
    view: Name
    version: Count
    hub_s: float
    changed: bool
    """False: the client's version is the newest and ``body`` is nil."""
    body: msgspec.Raw
    """The view's shape (``shapes``) as MessagePack maps."""
    error: Text = ""
    """Not empty: there is no such view or rank; ``body`` is nil."""


class CommandReply(Message, frozen=True):
    request: Count
    accepted: bool
    text: Text
    reference: Count = 0
    """What the command is called in views, where it takes time; 0 for none."""
