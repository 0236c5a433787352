"""Frames: four bytes of header, then a MessagePack body. Pure; knows no socket."""

import msgspec

from rankscope.protocol import limits
from rankscope.protocol.messages import KINDS, TYPES, Kind, Message, Refused
from rankscope.protocol.version import MAJOR

MAGIC = b"RS"
HEADER_BYTES = 4

_encoder = msgspec.msgpack.Encoder()
_decoders = {kind: msgspec.msgpack.Decoder(type_) for kind, type_ in TYPES.items()}
_headers = {type_: MAGIC + bytes((MAJOR, kind)) for type_, kind in KINDS.items()}


class BadFrame(ValueError):
    """The bytes are not a frame of this protocol; the text says what is wrong, in one line."""


class UnknownKind(BadFrame):
    """A well-formed frame of a kind this version does not know: to be counted and ignored."""


class OtherMajor(BadFrame):
    """A frame of another major version: its sender is to be refused in words."""

    def __init__(self, major: int) -> None:
        super().__init__(f"protocol major {major}, this side speaks {MAJOR}")
        self.major = major


def encode(message: Message) -> bytes:
    """The frame for ``message``."""
    return _headers[type(message)] + _encoder.encode(message)


def decode(frame: bytes, max_bytes: int = limits.MAX_INBOUND_FRAME_BYTES) -> Message:
    """The message in ``frame``.

    Raises :class:`UnknownKind`, :class:`OtherMajor` or plain :class:`BadFrame`. ``Refused`` is
    decoded whatever its major, since its layout never changes.
    """
    kind = frame_kind(frame, max_bytes)
    try:
        return _decoders[kind].decode(memoryview(frame)[HEADER_BYTES:])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, OverflowError) as error:
        raise BadFrame(f"{kind.name.lower()}: {error}") from None


def frame_kind(frame: bytes, max_bytes: int = limits.MAX_INBOUND_FRAME_BYTES) -> Kind:
    """The kind of ``frame``, its body unread. Raises as :func:`decode` does."""
    if len(frame) > max_bytes:
        raise BadFrame(f"{len(frame)} bytes, the limit is {max_bytes}")
    if len(frame) < HEADER_BYTES or frame[:2] != MAGIC:
        raise BadFrame("not a rankscope frame")
    major, code = frame[2], frame[3]
    if major != MAJOR and code != Kind.REFUSED:
        raise OtherMajor(major)
    try:
        return Kind(code)
    except ValueError:
        raise UnknownKind(f"message kind {code}") from None


def refusal(text: str) -> bytes:
    """A frame that a peer of any major version can read."""
    return encode(Refused(text))
