"""What a hub tells, with each command in it naming the run that it came from (``pasting``)."""

from typing import Any

import msgspec

from rankscope.protocol import pasting
from rankscope.protocol.shapes import Shape

SAYING = frozenset(
    {
        *("command", "commands", "control", "evidence", "finding", "findings", "hub_note"),
        "incidents",
        *("next", "note", "notes", "outcomes", "pending", "possible", "text", "verdict"),
    }
)
"""The fields that hold advice, or shapes and lists that do. Never the rows of ranks: there are
thousands."""


def name_run(body: Shape, words: str) -> None:
    """Do so in ``body`` itself, which must be the caller's own: a shape that was just decoded."""
    if words:
        _name_in(body, words)


def _name_in(body: msgspec.Struct, words: str) -> None:
    for field in SAYING.intersection(body.__struct_fields__):
        value = getattr(body, field)
        told = _told(value, words)
        if told is not value:
            setattr(body, field, told)


def _told(value: Any, words: str) -> Any:
    """``value`` itself where it is a shape, which is told of in place."""
    match value:
        case str():
            return pasting.named(value, words)
        case msgspec.Struct():
            _name_in(value, words)
        case list():
            return [_told(each, words) for each in value]
        case dict():
            return {name: _told(each, words) for name, each in value.items()}
    return value
