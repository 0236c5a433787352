"""Which deaths by SIGKILL were the kernel's, for want of memory.

The kernel raises a group's ``oom_kill`` counter by one for each process it kills so. A SIGKILL
whose group's counter went up shortly before is one of those; each step of the counter accounts for
one death only, so that a rank killed by its launcher a moment later is not called an OOM kill.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rankscope.agent.sentinel import cgroup

CLAIM_S = 10.0
"""A large process can take this long to be gone after the kernel killed it: it frees its memory
before anyone sees it dead."""


@dataclass
class Counter:
    """Steps of one counter that no death has accounted for yet. Pure: readings are handed in."""

    first: int | None = None
    last: int | None = None
    unclaimed: list[float] = field(default_factory=list)
    """When each was seen."""

    def read(self, value: int | None, now: float) -> None:
        """Take a reading; None (unreadable) changes nothing."""
        if value is None:
            return
        if self.last is None:
            self.first = self.last = value
        self.unclaimed += [now] * min(max(0, value - self.last), 1024)
        self.last = value

    def claim(self, now: float) -> bool:
        """Whether a death at ``now`` can be one of the kernel's; uses up one step."""
        self.unclaimed = [seen for seen in self.unclaimed if now - seen <= CLAIM_S]
        if not self.unclaimed:
            return False
        self.unclaimed.pop(0)
        return True

    @property
    def since_first(self) -> int | None:
        if self.first is None or self.last is None:
            return None
        return max(0, self.last - self.first)


class OomWatch:
    """The counters of all groups that watched processes are in."""

    def __init__(self, group_of: Callable[[int], cgroup.Group | None] = cgroup.group_of) -> None:
        self._group_of = group_of
        self._groups: dict[int, cgroup.Group] = {}
        self._counters: dict[cgroup.Group, Counter] = {}

    def add(self, pid: int, now: float) -> None:
        """Note the group of a live process and where its counter stands."""
        group = self._group_of(pid)
        if group is not None:
            self._groups[pid] = group
            self._counters.setdefault(group, Counter()).read(group.oom_kills(), now)

    def poll(self, now: float) -> None:
        """Read all counters."""
        for group, counter in self._counters.items():
            counter.read(group.oom_kills(), now)

    def killed(self, pid: int, now: float) -> bool:
        """Whether ``pid``, just ended by SIGKILL, was killed for want of memory."""
        group = self._groups.get(pid)
        if group is None:
            return False
        counter = self._counters[group]
        counter.read(group.oom_kills(), now)
        return counter.claim(now)

    def forget(self, pid: int) -> None:
        self._groups.pop(pid, None)

    @property
    def kills(self) -> int | None:
        """OOM kills in all groups since the watch began; None when no counter can be read."""
        known = [c.since_first for c in self._counters.values() if c.since_first is not None]
        return sum(known) if known else None

    def limit_bytes(self) -> int | None:
        """The lowest limit of any group."""
        return min(_known(group.limit_bytes() for group in self._counters), default=None)

    def available_bytes(self) -> int | None:
        """The least room below a limit in any group."""
        return min(_known(group.available_bytes() for group in self._counters), default=None)


def _known(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]
