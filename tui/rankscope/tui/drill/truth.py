"""What the ranks said of their own faults, in the file that only the drill reads."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from rankscope.protocol.shapes import Injected


class Line(msgspec.Struct):
    """The first line of ``--fault-log``: a fault is about to happen."""

    fault: str
    ranks: list[int]
    step: int
    kind: str
    where: dict[str, str | int]
    at_s: float
    pid: int


class Over(msgspec.Struct):
    """A later line: a step in which a fault happened is over on that rank."""

    ended_step: int
    at_s: float


@dataclass(frozen=True)
class Truth:
    injected: Injected
    at_s: float
    """When it happened, Unix time."""
    step_over_s: float | None = None
    """When its step was over on the rank that had it, Unix time; None while it is not."""


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
    injected = Injected(first.ranks, first.step, first.kind, first.where)
    return Truth(injected, first.at_s, _over_s(lines[1:], first.step))


def _over_s(lines: list[bytes], step: int) -> float | None:
    for line in lines:
        with contextlib.suppress(msgspec.ValidationError):  # another rank's fault
            over = msgspec.json.decode(line, type=Over)
            if over.ended_step == step:
                return over.at_s
    return None
