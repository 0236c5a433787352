"""From checksums that were noted to messages: when names go with them, and what is kept. Pure."""

from typing import Any, NamedTuple

from rankscope.agent.probes.numerics.checksum import mixed, total
from rankscope.protocol import limits
from rankscope.protocol.messages import Checksum, Checksums, FromRank

NAMED_EVERY = 8
"""One check of so many has the values of all its tensors; the others have their total."""

NAMED_S = 0.25
"""So does one that comes so long after the last."""


class Check(NamedTuple):
    """What of a check is known before its values."""

    number: int
    """Of the step's note."""
    first: int
    names: tuple[str, ...]
    buffers: tuple[str, ...]
    """Names of the last values, which are of buffers."""
    compared: bool
    """Whether bits were compared with those after the update before."""
    written: tuple[str, ...] | None
    """Parameters that were written to since the update before; None where that is not known."""
    replicas: str
    every: int


class Checks:
    """Of the sending thread."""

    def __init__(self) -> None:
        self._last_s = -1e9
        self._newest: tuple[int, Check, list[int], tuple[str, ...] | None] | None = None

    def said(
        self,
        step: int,
        now: float,
        check: Check,
        values: list[int],
        altered: tuple[str, ...] | None,
    ) -> tuple[type[FromRank], dict[str, Any]]:
        """The message on ``check``, which is of ``step``."""
        named = bool(altered) or not (step // check.every) % NAMED_EVERY
        named = named or now - self._last_s >= NAMED_S
        self._last_s = now
        self._newest = step, check, values, altered
        return Checksums, _fields(step, check, values, altered, named)

    def newest(self) -> tuple[tuple[type[FromRank], dict[str, Any]], ...]:
        """The newest one with all its values, for a hub that asks."""
        if self._newest is None:
            return ()
        return ((Checksums, _fields(*self._newest, named=True)),)


def _fields(
    step: int, check: Check, values: list[int], altered: tuple[str, ...] | None, named: bool
) -> dict[str, Any]:
    parameters = [mixed(value) for value in values[: len(check.names)]]
    told: tuple[Checksum, ...] = ()
    if named:
        told = tuple(map(Checksum, (cut(name) for name in check.names), parameters))
        rest = zip(check.buffers, values[len(parameters) :], strict=False)
        told += tuple(Checksum(cut(name), mixed(value), buffer=True) for name, value in rest)
    return {
        "step": step,
        "first": check.first,
        "total": total(parameters),
        "values": told[: limits.MAX_CHECKSUMS],
        "replicas": check.replicas[: limits.MAX_NAME_CHARS],
        "altered": None if altered is None else tuple(map(cut, altered[: limits.MAX_CHECKSUMS])),
    }


def cut(name: str) -> str:
    return name[: limits.MAX_TEXT_CHARS]
