"""What the ranks said of their own faults, in the file that only the drill reads."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from rankscope.protocol.shapes import Injected


class Line(msgspec.Struct):
    """One line of ``--fault-log``."""

    fault: str
    ranks: list[int]
    step: int
    kind: str
    where: dict[str, str | int]
    at_s: float
    pid: int


@dataclass(frozen=True)
class Truth:
    injected: Injected
    at_s: float
    """When it happened, Unix time."""


def read(path: Path) -> Truth | None:
    """The fault of a run with one fault; None while it has not happened."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    lines = [line for line in text.splitlines(keepends=True) if line.endswith(b"\n")]
    if not lines:
        return None
    first = msgspec.json.decode(lines[0], type=Line)
    return Truth(Injected(first.ranks, first.step, first.kind, first.where), first.at_s)
