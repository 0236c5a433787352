"""A message as the frame that the hub takes, whatever values have found their way into it.

A number that no integer of the wire holds, half a surrogate pair in a path, a traceback in a script
of four bytes a character: one such message must not hold up all that come after it.
"""

import logging
from typing import Any

import msgspec

from rankscope.protocol import codec, limits
from rankscope.protocol.messages import Groups, Message

log = logging.getLogger("rankscope")

SHORT_CHARS = 2048
"""What is left of a text in a message that was too large."""


def frame(message: Message) -> bytes | None:
    """The frame of ``message``, mended where it must be; None when it cannot be sent at all."""
    made: bytes | None
    try:
        made = codec.encode(message)
    except Exception as error:  # noqa: BLE001 - whatever it was, mending it comes next
        log.debug("rankscope: mended %s: %s", type(message).__name__, error)
        made = _encode(mended(message))
    if made is not None and len(made) > limits.MAX_INBOUND_FRAME_BYTES:
        made = _encode(mended(_without_ranks(message), SHORT_CHARS))
    if made is None or len(made) > limits.MAX_INBOUND_FRAME_BYTES:
        return None
    return made


def mended(value: Any, keep_chars: int | None = None) -> Any:
    """``value`` with texts that are UTF-8 (their last ``keep_chars``) and integers of 63 bits."""
    if isinstance(value, str):
        text = value.encode("utf-8", "backslashreplace").decode()
        return text if keep_chars is None else text[-keep_chars:]
    if type(value) is int:
        return max(-limits.MAX_COUNT, min(limits.MAX_COUNT, value))
    if isinstance(value, tuple | list):
        return type(value)(mended(one, keep_chars) for one in value)
    if isinstance(value, dict):
        return {mended(key, keep_chars): mended(one, keep_chars) for key, one in value.items()}
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.asdict(value)
        return type(value)(**{name: mended(one, keep_chars) for name, one in fields.items()})
    return value


def _encode(message: Any) -> bytes | None:
    try:
        return codec.encode(message)
    except Exception as error:  # noqa: BLE001 - the caller counts what was dropped
        log.debug("rankscope: dropped %s: %s", type(message).__name__, error)
        return None


def _without_ranks(message: Message) -> Message:
    if not isinstance(message, Groups):
        return message
    groups = tuple(msgspec.structs.replace(group, ranks=()) for group in message.groups)
    return msgspec.structs.replace(message, groups=groups)
