"""The state of a run from its recording: the newest snapshot and what came after it."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rankscope.hub import snapshot
from rankscope.hub.recording import FRAME, SNAPSHOT, TICK, Record, read_segment, segments
from rankscope.hub.state import RunState
from rankscope.hub.state.plausible import BadMessage
from rankscope.protocol import codec


class Restored(NamedTuple):
    state: RunState
    last_s: float
    """The time of the newest record, hub clock."""


def restore(directory: Path, run: str) -> Restored | None:
    """The newest state that can be read from a recording of ``run``; None when there is none.

    A damaged segment loses what stands after the damage, and one without a whole snapshot is
    passed over for the one before it.
    """
    for path in reversed(segments(directory)):
        records = list(read_segment(path))
        for start in reversed(range(len(records))):
            record = records[start]
            if record.kind != SNAPSHOT:
                continue
            try:
                state = snapshot.load(record.data or b"")
            except snapshot.BadSnapshot:
                continue
            if state.run == run:
                replay(state, records[start + 1 :])
                return Restored(state, max(record.hub_s for record in records))
    return None


def replay(state: RunState, records: Sequence[Record]) -> None:
    """Do to ``state`` what the hub did when it received these records."""
    for record in records:
        if record.kind == TICK:
            state.tick(record.hub_s)
        elif record.kind == FRAME and record.data is not None:
            try:
                state.apply(codec.decode(record.data), record.hub_s)
            except (codec.BadFrame, BadMessage):
                continue  # recorded by another minor version
