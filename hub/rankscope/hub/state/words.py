"""What ranks say of themselves in words, and rarely: identity, groups, exceptions, probe faults.

Equal things are kept once: 16,384 ranks tell the same facts and name the same groups.
"""

from collections.abc import Hashable
from typing import Any, Generic, TypeVar

import msgspec

from rankscope.hub.state.setup import OWN_FACTS
from rankscope.protocol import messages as m

Kept = TypeVar("Kept", bound=Hashable)

MAX_KEPT = 1 << 18
MAX_PROBE_FAULTS = 64


class Interned(Generic[Kept]):
    """Distinct values in the order in which they came, found by index."""

    def __init__(self) -> None:
        self.values: list[Kept] = []
        self._index: dict[Kept, int] = {}

    def index(self, value: Kept) -> int:
        """The index of ``value``, which is added when new; -1 when the table is full."""
        found = self._index.get(value)
        if found is None:
            if len(self.values) >= MAX_KEPT:
                return -1
            found = self._index[value] = len(self.values)
            self.values.append(value)
        return found

    def find(self, value: Kept) -> int:
        """The index of ``value``; -1 when it is not there."""
        return self._index.get(value, -1)

    def load(self, values: list[Kept]) -> None:
        self.values = list(values)
        self._index = {value: index for index, value in enumerate(self.values)}


class Identity(msgspec.Struct, frozen=True):
    """The part of a hello that ranks usually share."""

    name: str
    trainer: str
    device: str
    facts: tuple[tuple[str, str], ...]


class RankException(msgspec.Struct, frozen=True):
    """An exception that ended a rank."""

    at_s: float
    type: str
    message: str
    traceback: str
    source: str
    step: int
    phase: int
    from_peer: bool


class Rival(msgspec.Struct, frozen=True):
    """A process that says it is a rank which belongs to another one."""

    pid: int
    host: str
    at_s: float


class Words:
    """All of it, by rank."""

    def __init__(self) -> None:
        self.hosts: Interned[str] = Interned()
        self.identities: Interned[Identity] = Interned()
        self.group_table: Interned[m.Group] = Interned()
        self.groups: dict[int, tuple[int, ...]] = {}
        self.collectives: dict[int, dict[str, tuple[int, int, int]]] = {}
        self.memory: dict[int, m.Memory] = {}
        self.exceptions: dict[int, RankException] = {}
        self.probe_faults: dict[int, dict[str, str]] = {}
        self.rivals: dict[int, Rival] = {}
        self.how_ended: dict[int, str] = {}
        """Who saw a dead rank's process end."""

    def forget(self, rank: int) -> None:
        """The rank begins a new life."""
        for table in self._by_rank():
            table.pop(rank, None)

    def forget_all(self) -> None:
        for table in self._by_rank():
            table.clear()

    def _by_rank(self) -> tuple[dict[int, Any], ...]:
        return (
            self.groups,
            self.collectives,
            self.memory,
            self.exceptions,
            self.probe_faults,
            self.rivals,
            self.how_ended,
        )

    def identity(self, hello: m.Hello) -> int:
        facts = tuple(sorted(f for f in hello.facts.items() if f[0] not in OWN_FACTS))
        return self.identities.index(Identity(hello.name, hello.trainer, hello.device, facts))

    def set_groups(self, rank: int, groups: tuple[m.Group, ...]) -> None:
        self.groups[rank] = tuple(self.group_table.index(group) for group in groups)

    def set_collectives(self, rank: int, collectives: tuple[m.CollectiveStatus, ...]) -> None:
        known = self.collectives.setdefault(rank, {})
        for status in collectives:
            if status.group in known or len(known) < 1024:
                known[status.group] = (
                    status.last_enqueued,
                    status.last_started,
                    status.last_completed,
                )

    def set_probe_fault(self, rank: int, fault: m.ProbeFault) -> None:
        faults = self.probe_faults.setdefault(rank, {})
        if len(faults) < MAX_PROBE_FAULTS:
            faults[fault.probe] = fault.error

    def dump(self) -> dict[str, Any]:
        return {
            "hosts": self.hosts.values,
            "identities": msgspec.to_builtins(self.identities.values),
            "group_table": msgspec.to_builtins(self.group_table.values),
            "groups": self.groups,
            "collectives": self.collectives,
            "memory": msgspec.to_builtins(self.memory, str_keys=False),
            "exceptions": msgspec.to_builtins(self.exceptions, str_keys=False),
            "probe_faults": self.probe_faults,
            "rivals": msgspec.to_builtins(self.rivals, str_keys=False),
            "how_ended": self.how_ended,
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Take over what ``dump`` gave; raises ValidationError when it does not fit."""
        self.hosts.load(msgspec.convert(saved["hosts"], list[str]))
        self.identities.load(msgspec.convert(saved["identities"], list[Identity]))
        self.group_table.load(msgspec.convert(saved["group_table"], list[m.Group]))
        self.groups = msgspec.convert(saved["groups"], dict[int, tuple[int, ...]])
        self.collectives = msgspec.convert(
            saved["collectives"], dict[int, dict[str, tuple[int, int, int]]]
        )
        self.memory = msgspec.convert(saved["memory"], dict[int, m.Memory])
        self.exceptions = msgspec.convert(saved["exceptions"], dict[int, RankException])
        self.probe_faults = msgspec.convert(saved["probe_faults"], dict[int, dict[str, str]])
        self.rivals = msgspec.convert(saved.get("rivals", {}), dict[int, Rival])
        self.how_ended = msgspec.convert(saved["how_ended"], dict[int, str])
