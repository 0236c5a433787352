"""The state of a run as bytes, and back. No pickle: MessagePack of builtins, arrays as bytes."""

from typing import Any

import msgspec

from rankscope.hub.state import RunState
from rankscope.hub.state.nodes import LateEnd
from rankscope.hub.state.parts import PARTS
from rankscope.protocol import messages as m

FORMAT = 1

COLUMNS = ("ranks", "sequences", "clocks", "node_sequences", "node_clocks")
OLDEST = ("nodes", "words", "history")
"""Parts that every snapshot has; those of ``PARTS`` came later and may be missing."""


class BadSnapshot(ValueError):
    """The bytes are no snapshot that this version can read."""


class Scalars(msgspec.Struct):
    """The state's single values."""

    run: str
    name: str
    version: int
    head_changed: int
    attempt: int
    world_size: int
    first_heard_s: float | None
    run_end: m.RunEnd | None
    run_end_s: float | None
    bad_frames: int
    unknown_kinds: int
    restarts: int
    last_tick_s: float | None
    away_from_s: float
    away_until_s: float
    late_ends: list[LateEnd]
    began_s: float | None = None
    blind: list[tuple[float, float]] = []


def dump(state: RunState) -> bytes:
    """All of ``state``."""
    scalars = {name: getattr(state, name) for name in Scalars.__struct_fields__}
    parts: dict[str, Any] = {"format": FORMAT, "scalars": Scalars(**scalars)}
    for name in (*COLUMNS, *OLDEST, *PARTS):
        parts[name] = getattr(state, name).dump()
    return msgspec.msgpack.encode(parts)


def _load_part(state: RunState, name: str, saved: Any) -> None:
    """A part that an older version wrote otherwise, or not at all, begins empty."""
    part = getattr(state, name)
    part.reserve(state.ranks.size)
    if saved is None:
        return
    try:
        part.load(saved)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
        setattr(state, name, type(part)())
        getattr(state, name).reserve(state.ranks.size)


def load(raw: bytes) -> RunState:
    """The state that ``dump`` saw. Raises :class:`BadSnapshot`."""
    try:
        parts = msgspec.msgpack.decode(raw, strict=False)
        if not isinstance(parts, dict) or parts.get("format") != FORMAT:
            raise BadSnapshot("a snapshot of another format")
        scalars = msgspec.convert(parts["scalars"], Scalars)
        state = RunState(scalars.run)
        for name in Scalars.__struct_fields__:
            setattr(state, name, getattr(scalars, name))
        for name in (*COLUMNS, *OLDEST):
            getattr(state, name).load(parts[name])
        for name in PARTS:
            _load_part(state, name, parts.get(name))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadSnapshot(str(error)) from None
    sizes = {state.ranks.size, state.sequences.size, state.clocks.size}
    nodes = {state.node_sequences.size, state.node_clocks.size}
    if len(sizes) > 1 or len(nodes) > 1 or len(state.nodes.sentinels) > min(nodes):
        raise BadSnapshot("columns of different lengths")
    if state.size() > state.ranks.size:
        raise BadSnapshot("more ranks than columns")
    return state
