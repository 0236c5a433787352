"""The faults a drill can inject, and how one is written: ``FAULT@rank:step[:where]``.

The trainers inject them, the drill judges by the table in :mod:`rankscope.protocol.faulttable`;
neither may import the other, so what both must agree on is here. It is data and no behaviour.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rankscope.protocol.exits import UserError

Blame = Literal["injected", "others", "pair", "nobody"]
"""Who is to be named: the rank the fault is written for, all ranks but that one, that one and the
rank it copies, or no rank at all."""


@dataclass(frozen=True)
class Fault:
    """One fault, and what a run that has it must be called."""

    name: str
    does: str
    """One line: what happens to the rank."""
    kinds: tuple[str, ...]
    """Kinds of finding that are right; more than one where the moment decides."""
    where: tuple[str, ...] = ()
    """Keys of a finding's ``where`` that must be right."""
    one_step: bool = True
    """Whether it happens in one step, whose number must be right."""
    blame: Blame = "injected"
    allowed: tuple[str, ...] = ()
    """Kinds of a second critical finding that may stand beside the right one."""
    allowed_on_victims: tuple[str, ...] = ()
    """The same, on ranks that are not to blame only."""
    argument: str = ""
    """What ``where`` of ``FAULT@rank:step:where`` means here; empty if there is none."""
    whole_run: bool = False
    """There from the start, so its step is 1."""
    least_step: int = 1
    least_ranks: int = 1
    options: tuple[str, ...] = ()
    """What a trainer is to be started with, so that the fault can happen. ``{step}`` stands for the
    fault's step, ``{folder}`` for a folder of the run's own, ``{ranks}`` for their number."""
    fsdp2_options: tuple[str, ...] = ()
    """The same, for FSDP2 only."""
    missing: str = ""
    """What it needs that this version does not have; empty when it can be injected."""


@dataclass(frozen=True)
class Spec:
    """One fault to inject: ``name@rank:step[:where]``."""

    name: str
    rank: int
    step: int
    where: str = ""

    def __str__(self) -> str:
        where = f":{self.where}" if self.where else ""
        return f"{self.name}@{self.rank}:{self.step}{where}"


NEAR = 0.6
"""Names that are less alike than this are not meant: ``nofault`` is no ``nan-input``."""

MOST_NEAR = 4

_WRITTEN = re.compile(
    r"(?P<name>[^@:]+)@(?P<rank>[0-9]{1,9}):(?P<step>[0-9]{1,9})(:(?P<where>.+))?"
)


def parse(text: str, faults: Iterable[Fault]) -> Spec:
    """The fault that ``text`` writes. Raises :class:`UserError` when it is none of ``faults``."""
    known = {fault.name: fault for fault in faults}
    find(text.partition("@")[0], known.values())
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise UserError(
            f"fault {text!r}: write it FAULT@rank:step or FAULT@rank:step:where, "
            "such as sigkill@1:20"
        )
    return Spec(match["name"], int(match["rank"]), int(match["step"]), match["where"] or "")


def find(name: str, faults: Iterable[Fault]) -> Fault:
    """The fault called ``name``; raises :class:`UserError` with the nearest names if none is."""
    known = {fault.name: fault for fault in faults}
    if name in known:
        return known[name]
    words = sorted(name.split("-"))
    near = [one for one in known if sorted(one.split("-")) == words]  # the same, turned round
    near = near or [one for one in known if name in one.split("-")][:MOST_NEAR]
    near = near or difflib.get_close_matches(name, known, n=3, cutoff=NEAR)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
    raise UserError(f"there is no fault {name!r}; {hint}")


def check(spec: Spec, fault: Fault, world_size: int, steps: int) -> None:
    """Raise :class:`UserError` for a rank, step or ``where`` that a run does not have."""
    if spec.rank >= world_size:
        raise UserError(f"fault {spec}: there is no rank {spec.rank} among {world_size}")
    if world_size < fault.least_ranks:
        raise UserError(f"fault {spec}: it takes at least {fault.least_ranks} ranks")
    if not 1 <= spec.step <= steps:
        raise UserError(f"fault {spec}: there is no step {spec.step} among 1 to {steps}")
    if fault.whole_run and spec.step != 1:
        raise UserError(f"fault {spec}: it is there from the start; its step is 1")
    if spec.step < fault.least_step:
        raise UserError(f"fault {spec}: it takes a step of at least {fault.least_step}")
    if spec.where and not fault.argument:
        raise UserError(f"fault {spec}: {fault.name} has no third part; leave out {spec.where!r}")
    if fault.missing:
        raise UserError(f"fault {spec}: it needs {fault.missing}, not available in this version")
