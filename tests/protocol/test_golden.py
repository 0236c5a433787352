"""The contract as documents: one golden file for each message and each shape.

After a meant change: ``python -m pytest tests/protocol/test_golden.py --write-golden``, then read
the difference as a reviewer would.
"""

import json
from pathlib import Path

import msgspec
import pytest

from rankscope.protocol import codec, jsontext
from rankscope.protocol.messages import KINDS, TYPES, Kind
from support.samples import MESSAGES, SHAPES

GOLDEN = Path(__file__).parent / "golden"


def agree(name: str, text: str, write: bool) -> None:
    path = GOLDEN / f"{name}.json"
    if write:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_a_shape_prints_as_its_golden_document(name: str, write_golden: bool) -> None:
    """What --json prints is what is on file, key by key."""
    agree(name, jsontext.dumps(SHAPES[name], indent=2) + "\n", write_golden)


@pytest.mark.parametrize("kind", sorted(MESSAGES))
def test_a_message_is_these_bytes(kind: Kind, write_golden: bool) -> None:
    """The bytes of a frame, its named fields and its array are on file."""
    message = MESSAGES[kind]
    frame = codec.encode(message)
    document = {
        "kind": int(kind),
        "fields": {name: _plain(getattr(message, name)) for name in message.__struct_fields__},
        "body": msgspec.msgpack.decode(frame[codec.HEADER_BYTES :]),
        "frame_hex": frame.hex(),
    }
    agree(
        f"messages/{kind.name.lower()}",
        json.dumps(document, indent=1, ensure_ascii=False) + "\n",
        write_golden,
    )
    assert codec.decode(bytes.fromhex(document["frame_hex"])) == message


def _plain(value: object) -> object:
    if isinstance(value, msgspec.Raw):
        return msgspec.msgpack.decode(value)
    return msgspec.to_builtins(value)


def test_every_kind_has_a_type_and_a_sample() -> None:
    """A kind cannot be added without its golden document."""
    assert set(TYPES) == set(Kind) == set(MESSAGES) == set(KINDS.values())
