"""Process groups, and how far each has come, polled from torch's flight recorder.

Only ``pg_status`` is polled (microseconds, some 300 bytes). It is keyed by a number that each
process counts by itself; the recorder's entries tie it to the group's name, which all members
share, so they are taken once for each group that is new. The symbols are private: a torch without
them has no collective status, and says so in nothing but its absence.
"""

import sys
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from rankscope.agent.probes.base import Probe
from rankscope.protocol import limits
from rankscope.protocol.messages import CollectiveStatus, Group

MAX_TRIES = 5
"""How often a group's number is looked up in the entries before it is given up."""


class _Status(msgspec.Struct):
    last_enqueued_collective: str = "-1"
    last_started_collective: str = "-1"
    last_completed_collective: str = "-1"


class _Entry(msgspec.Struct):
    pg_id: int
    process_group: list[str]


class _Dump(msgspec.Struct):
    pg_status: dict[str, _Status] = {}
    entries: list[_Entry] = []


_decoder = msgspec.json.Decoder(_Dump)


class Source:
    """One recorder: NCCL's or that of the other backends. Each numbers its groups by itself."""

    def __init__(self, dump: Callable[..., bytes]) -> None:
        self._dump = dump
        self._names: dict[str, str] = {}
        self._tries: dict[str, int] = {}

    def read(self) -> dict[str, CollectiveStatus]:
        """The status of each group whose name is known, by name."""
        statuses = _decoder.decode(self._dump(includeCollectives=False)).pg_status
        unknown = [one for one in statuses if one not in self._names]
        if any(self._tries.get(one, 0) < MAX_TRIES for one in unknown):
            for one in unknown:
                self._tries[one] = self._tries.get(one, 0) + 1
            for entry in _decoder.decode(self._dump(includeCollectives=True)).entries:
                self._names.setdefault(str(entry.pg_id), entry.process_group[0])
        return {
            self._names[one]: CollectiveStatus(
                self._names[one],
                int(status.last_enqueued_collective),
                int(status.last_started_collective),
                int(status.last_completed_collective),
            )
            for one, status in statuses.items()
            if self._names.get(one)  # "" is a group built directly, none of the user's
        }


class Collectives(Probe):
    """Read by the sending thread."""

    name: ClassVar[str] = "collectives"
    guarded: ClassVar[tuple[str, ...]] = ("read_groups", "read_statuses")

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._sources: list[Source] | None = None

    def read_statuses(self) -> tuple[CollectiveStatus, ...]:
        if not _is_initialized():
            return ()
        if self._sources is None:
            self._sources = [Source(dump) for dump in _dumps()]
        found: dict[str, CollectiveStatus] = {}
        for source in self._sources:
            found.update(source.read())
        return tuple(found[name] for name in sorted(found))[: limits.MAX_GROUPS]

    def read_groups(self) -> tuple[Group, ...]:
        """The process groups this rank is in, by name."""
        if not _is_initialized():
            return ()
        c10d = sys.modules["torch.distributed.distributed_c10d"]
        world: Any = getattr(c10d, "_world", None)
        if world is None:
            return ()
        groups = []
        # Copies: the training thread may make or destroy a group meanwhile.
        ranks_by_group = dict(world.pg_group_ranks)
        for group, (backend, _) in list(dict(world.pg_map).items()):
            ranks = sorted(ranks_by_group.get(group, ()))
            groups.append(
                Group(
                    name=str(group.group_name)[: limits.MAX_NAME_CHARS],
                    description=str(getattr(group, "group_desc", ""))[: limits.MAX_NAME_CHARS],
                    backend=str(backend)[: limits.MAX_NAME_CHARS],
                    size=len(ranks),
                    ranks=tuple(ranks) if len(ranks) <= limits.MAX_GROUP_RANKS else (),
                )
            )
        groups.sort(key=lambda group: group.name)
        return tuple(groups[: limits.MAX_GROUPS])


def _is_initialized() -> bool:
    distributed = sys.modules.get("torch.distributed")
    return bool(
        distributed is not None and distributed.is_available() and distributed.is_initialized()
    )


def _dumps() -> list[Callable[..., bytes]]:
    """The recorders' dump functions that this torch has; NCCL's last, so that it goes first."""
    try:
        from torch._C import _distributed_c10d as c10d
    except ImportError:
        return []
    names = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
    return [getattr(c10d, name) for name in names if hasattr(c10d, name)]
