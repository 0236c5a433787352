"""Frames: what is let in, what is refused, and that nothing else can happen."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.protocol import codec, limits
from rankscope.protocol.messages import ROLES, Beat, Kind, Refused
from rankscope.protocol.version import MAJOR
from support.samples import MESSAGES

BODY = codec.HEADER_BYTES


@given(st.binary(max_size=300))
def test_random_bytes_are_a_bad_frame_and_nothing_else(junk: bytes) -> None:
    """No bytes whatever make the decoder raise anything but BadFrame."""
    with pytest.raises(codec.BadFrame):
        codec.decode(b"X" + junk)


@given(st.sampled_from(sorted(Kind)), st.binary(max_size=300))
def test_random_bodies_decode_or_are_a_bad_frame(kind: Kind, junk: bytes) -> None:
    """Behind a good header too."""
    try:
        codec.decode(codec.MAGIC + bytes((MAJOR, kind)) + junk)
    except codec.BadFrame:
        return


@given(st.sampled_from(sorted(MESSAGES)), st.integers(min_value=0), st.integers(0, 255))
def test_a_flipped_byte_decodes_or_is_a_bad_frame(kind: Kind, place: int, value: int) -> None:
    """Damage anywhere in a real frame is met with a message or BadFrame."""
    frame = bytearray(codec.encode(MESSAGES[kind]))
    frame[place % len(frame)] = value
    try:
        codec.decode(bytes(frame))
    except codec.BadFrame:
        return


@pytest.mark.parametrize("kind", sorted(MESSAGES))
def test_every_truncation_is_a_bad_frame(kind: Kind) -> None:
    """A frame cut anywhere is refused, never read as something shorter."""
    frame = codec.encode(MESSAGES[kind])
    for length in range(len(frame)):
        with pytest.raises(codec.BadFrame):
            codec.decode(frame[:length])


@pytest.mark.parametrize("kind", sorted(MESSAGES))
def test_trailing_fields_of_a_newer_minor_are_ignored(kind: Kind) -> None:
    """An older peer reads a newer one."""
    frame = codec.encode(MESSAGES[kind])
    body = msgspec.msgpack.decode(frame[BODY:])
    longer = frame[:BODY] + msgspec.msgpack.encode([*body, "new", {"field": [1, 2]}])
    assert codec.decode(longer) == MESSAGES[kind]


def test_an_unknown_kind_is_told_apart_from_junk() -> None:
    """It is to be ignored, not held against the peer."""
    with pytest.raises(codec.UnknownKind):
        codec.decode(codec.MAGIC + bytes((MAJOR, 250)) + b"\x90")


def test_another_major_is_told_apart_and_can_still_refuse_us() -> None:
    """A newer hub's refusal is readable for an older client."""
    with pytest.raises(codec.OtherMajor) as caught:
        codec.decode(codec.MAGIC + bytes((MAJOR + 1, Kind.BEAT)) + b"\x90")
    assert caught.value.major == MAJOR + 1
    refusal = bytearray(codec.refusal("too old"))
    refusal[2] = MAJOR + 1
    assert codec.decode(bytes(refusal)) == Refused("too old")


def test_an_oversized_frame_is_refused_before_it_is_read() -> None:
    """The limit holds for any kind."""
    with pytest.raises(codec.BadFrame, match="limit"):
        codec.decode(codec.encode(MESSAGES[Kind.BEAT]) + b"\0" * limits.MAX_INBOUND_FRAME_BYTES)


@pytest.mark.parametrize(
    ("field", "value"),
    [("rank", -1), ("rank", limits.MAX_WORLD_SIZE), ("phase", 99), ("step", -3), ("t_s", "soon")],
)
def test_a_field_out_of_range_is_a_bad_frame(field: str, value: object) -> None:
    """Types and ranges are checked before a message is used."""
    frame = codec.encode(MESSAGES[Kind.BEAT])
    body = msgspec.msgpack.decode(frame[BODY:])
    body[Beat.__struct_fields__.index(field)] = value
    with pytest.raises(codec.BadFrame):
        codec.decode(frame[:BODY] + msgspec.msgpack.encode(body))


def test_deep_nesting_is_a_bad_frame() -> None:
    """A nesting bomb neither crashes nor escapes as RecursionError."""
    header = codec.MAGIC + bytes((MAJOR, Kind.HELLO))
    with pytest.raises(codec.BadFrame):
        codec.decode(header + b"\x91" * 60_000 + b"\xc0")


def test_only_agents_publish_and_only_operators_command() -> None:
    """The table of roles, as SPEC.md has it."""
    assert Kind.COMMAND_REQUEST in ROLES["operator"]
    assert Kind.COMMAND_REQUEST not in ROLES["viewer"] | ROLES["agent"]
    assert Kind.BEAT in ROLES["agent"]
    assert Kind.BEAT not in ROLES["operator"] | ROLES["viewer"]
    assert Kind.VIEW_REQUEST not in ROLES["agent"]
