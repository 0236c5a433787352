"""Replicas that should be equal: checksums of the same step and part, compared once all are there.

Equal ones leave nothing behind but the step; the first that differ are kept, with who had what.
"""

from typing import Any

import msgspec

from rankscope.hub.state.columns import MAX_SIZE
from rankscope.protocol import messages as m

MAX_PENDING = 32
"""Checks that wait for ranks; the oldest goes first."""

MAX_VALUES = 4
"""Different lists of checksums kept of one check."""

MAX_PARTS = 64
"""Divergences kept: one for each part and set of replicas."""

MAX_CHARS = 256
MAX_NAMES = 64
PATIENCE_S = 1.0
"""Checksums come within this time of their step's record."""

MAX_ALTERED = 8
MAX_ALTERED_RANKS = 1024

MAX_ASKED = 64
"""In a world of so many ranks all are asked for their checksums when one tells of a change."""

FEW_CHANGES = 3
"""Of a rank that has told of so many changes a further one is no reason to ask: a loop that writes
to its parameters by itself does so again and again."""

UNWRAPPED = "unwrapped"
"""Ranks that nothing says to be replicas (they may be stages of a pipeline): only those that were
equal once can part."""


class Check(msgspec.Struct):
    """One part of the replicas at one step, as far as ranks have told of it."""

    step: int
    first: int
    replicas: str
    heard_s: float
    totals: dict[int, int] = {}
    values: dict[int, dict[str, int]] = {}
    """By total: the checksum of each parameter."""

    def take(self, message: m.Checksums) -> None:
        self.totals[message.rank] = message.total
        if message.values and (message.total in self.values or len(self.values) < MAX_VALUES):
            self.values[message.total] = {
                value.name[:MAX_CHARS]: value.value for value in message.values if not value.buffer
            }

    def classes(self) -> list[list[int]]:
        """Ranks with equal totals together, the largest class first, then by rank."""
        found: dict[int, list[int]] = {}
        for rank, total in sorted(self.totals.items()):
            found.setdefault(total, []).append(rank)
        return sorted(found.values(), key=lambda ranks: (-len(ranks), ranks))

    def names(self) -> list[str]:
        """Parameters whose checksums differ, in the model's order; empty while not known."""
        lists = list(self.values.values())
        if len(lists) < 2:
            return []
        first, *others = lists
        differing = [
            name
            for name, value in first.items()
            if any(other.get(name, value) != value for other in others)
        ]
        return differing[:MAX_NAMES]


class Altered(msgspec.Struct):
    """A rank's own account: parameters that changed while no update was made."""

    step: int
    names: list[str]


class Divergence(msgspec.Struct):
    """The first check that found replicas to differ."""

    step: int
    heard_s: float
    last_step: int
    classes: list[list[int]]
    altered: dict[int, Altered]
    """What its ranks said to have changed since they were equal last."""
    names: list[str]


class Replicas:
    """The checks under way, and what they found."""

    def __init__(self) -> None:
        self.pending: dict[tuple[int, int, str], Check] = {}
        self.divergences: dict[tuple[str, int], Divergence] = {}
        self.checked_step: int | None = None
        """Up to which step replicas were compared."""
        self._told: dict[str, int] = {}
        """How many ranks told of these replicas in a check that was full."""
        self._equal: dict[tuple[str, int], int] = {}
        """At which step each part was equal last."""
        self._altered: dict[int, Altered] = {}
        """The first change that each rank told of since then."""
        self._changes: dict[int, int] = {}
        """In how many stretches of equal replicas each rank told of one. Not saved."""

    def take(self, message: m.Checksums, received_s: float) -> bool:
        """Whether ranks differ in it that were equal until now, as far as they have told."""
        replicas = message.replicas
        key = (message.step, message.first, replicas)
        check = self.pending.get(key)
        if check is None:
            if len(self.pending) >= MAX_PENDING:
                del self.pending[min(self.pending)]
            check = self.pending[key] = Check(message.step, message.first, replicas, received_s)
        check.take(message)
        # Values that were asked for come when the difference is known already.
        known = self.divergences.get((replicas, message.first))
        if known is not None and not known.names and known.step <= message.step:
            known.names = check.names()
        part = (replicas, message.first)
        comparable = replicas != UNWRAPPED or part in self._equal
        return known is None and comparable and len(set(check.totals.values())) > 1

    def changed(self, message: m.Checksums) -> bool:
        """Keep the rank's own account of a change; whether it may be the beginning of a difference,
        which its next check in common with the others shows."""
        rank = message.rank
        known = self._altered.get(rank)
        equal = self._equal.get((message.replicas, message.first), -1)
        if not message.altered or (known is not None and known.step > equal):
            return False  # the first one is what parted them
        if known is None and len(self._altered) >= MAX_ALTERED_RANKS:
            return False
        names = [name[:MAX_CHARS] for name in message.altered[:MAX_ALTERED]]
        self._altered[rank] = Altered(message.step, names)
        self._changes[rank] = self._changes.get(rank, 0) + 1
        return self._changes[rank] <= FEW_CHANGES

    def tick(self, complete: int, world: int, now_s: float) -> None:
        """Compare what is all there: ``complete`` is the last step all ranks told of, ``world`` how
        many ranks there are."""
        for key, check in list(self.pending.items()):
            told = len(check.totals)
            expected = world if check.replicas == "world" else self._told.get(check.replicas, world)
            late = now_s - check.heard_s >= PATIENCE_S
            if told >= expected or (check.step <= complete and late) or check.step < complete - 2:
                if len(self._told) < MAX_PARTS or check.replicas in self._told:
                    self._told[check.replicas] = told
                del self.pending[key]
                self._compare(check)

    def _compare(self, check: Check) -> None:
        if len(check.totals) < 2:
            return
        key = (check.replicas, check.first)
        classes = check.classes()
        equal = self._equal.get(key, -1)
        if check.replicas == UNWRAPPED and len(classes) > 1 and equal < 0:
            return
        self.checked_step = max(check.step, self.checked_step or 0)
        known = self.divergences.get(key)
        if len(classes) == 1:
            self.divergences.pop(key, None)
            if key in self._equal or len(self._equal) < MAX_PARTS:
                self._equal[key] = max(check.step, equal)
        elif known is not None:
            known.last_step = max(known.last_step, check.step)
        elif len(self.divergences) < MAX_PARTS:
            self.divergences[key] = Divergence(
                step=check.step,
                heard_s=check.heard_s,
                last_step=check.step,
                classes=classes,
                altered={
                    rank: one
                    for rank, one in self._altered.items()
                    if rank in check.totals and equal < one.step <= check.step
                },
                names=check.names(),
            )

    def forget(self, rank: int) -> None:
        self._altered.pop(rank, None)
        self._changes.pop(rank, None)
        for check in self.pending.values():
            check.totals.pop(rank, None)

    def dump(self) -> Any:
        return msgspec.to_builtins(
            {
                "pending": list(self.pending.values()),
                "divergences": [[*key, value] for key, value in self.divergences.items()],
                "checked_step": self.checked_step,
                "told": self._told,
                "equal": [[*key, step] for key, step in self._equal.items()],
                "altered": self._altered,
            },
            str_keys=False,
        )

    def load(self, saved: Any) -> None:
        checks = msgspec.convert(saved["pending"], list[Check])
        if any(rank >= MAX_SIZE for check in checks for rank in check.totals):
            raise ValueError("checksums of a rank beyond all")
        self.pending = {(check.step, check.first, check.replicas): check for check in checks}
        found = msgspec.convert(saved["divergences"], list[tuple[str, int, Divergence]])
        self.divergences = {(replicas, first): one for replicas, first, one in found}
        self.checked_step = msgspec.convert(saved["checked_step"], int | None)
        self._told = msgspec.convert(saved["told"], dict[str, int])
        equal = msgspec.convert(saved["equal"], list[tuple[str, int, int]])
        self._equal = {(replicas, first): step for replicas, first, step in equal}
        self._altered = msgspec.convert(saved["altered"], dict[int, Altered])
