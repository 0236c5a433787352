"""The recent collectives of each rank, group by group, put together from its messages.

A *signature* is what must be the same on all ranks of a group at the same sequence number: the
operation, its sizes and its type. Equal ones are kept once, so that sequences compare as lists of
small numbers.
"""

from typing import Any, NamedTuple

import msgspec

from rankscope.hub.state.words import MAX_KEPT, Interned
from rankscope.protocol import limits
from rankscope.protocol import messages as m

KEPT = 512
"""Collectives of a group that are remembered of one rank."""

MAX_GROUPS_KEPT = 64
"""Groups of one rank whose collectives are remembered."""

POINT_TO_POINT = ("send", "recv")
"""These have numbers of their own, and differ between ranks by design."""

UNKNOWN = -1


class Signature(NamedTuple):
    name: str
    """``gloo:all_reduce``"""
    sizes: str
    dtype: str

    def text(self) -> str:
        """``all_reduce [1024] float32``"""
        if self == TORCHS:
            return "a collective of torch's own (DDP's or FSDP's)"
        return " ".join(filter(None, (self.operation, self.sizes, self.dtype)))

    @property
    def operation(self) -> str:
        """The name without its backend."""
        return self.name.rpartition(":")[2]


TORCHS = Signature("torch", "", "")
"""A collective of which is known only that the rank's own code did not call it."""


class Window(msgspec.Struct, array_like=True):
    """A stretch of one group's collectives on one rank: number ``first`` and those after it."""

    first: int
    signatures: list[int] = []
    """Indices; ``UNKNOWN`` where a number was not told."""
    sources: list[int] = []
    called_s: float = 0.0
    """When the last of them was called, hub clock."""
    done: int = 0
    """The last number that is known to be complete: the recorder's own count lags behind."""

    @property
    def end(self) -> int:
        """One beyond the last number."""
        return self.first + len(self.signatures)

    def at(self, seq: int) -> int:
        """The signature's index at ``seq``; ``UNKNOWN`` where that was not told."""
        place = seq - self.first
        return self.signatures[place] if 0 <= place < len(self.signatures) else UNKNOWN

    def source(self, seq: int) -> int:
        place = seq - self.first
        return self.sources[place] if 0 <= place < len(self.sources) else UNKNOWN

    def put(self, seq: int, signature: int, source: int) -> None:
        if seq >= self.end + KEPT or not self.signatures:
            self.first, self.signatures, self.sources = seq, [signature], [source]
            return
        if seq < self.first:
            missing = self.first - seq
            if missing + len(self.signatures) > KEPT:
                return
            self.signatures[:0] = [UNKNOWN] * missing
            self.sources[:0] = [UNKNOWN] * missing
            self.first = seq
        while seq >= self.end:
            self.signatures.append(UNKNOWN)
            self.sources.append(UNKNOWN)
        place = seq - self.first
        self.signatures[place] = signature
        if source != UNKNOWN or self.sources[place] == UNKNOWN:
            self.sources[place] = source
        if len(self.signatures) > KEPT:
            surplus = len(self.signatures) - KEPT
            del self.signatures[:surplus], self.sources[:surplus]
            self.first += surplus


class Operations:
    """By rank; a part of the state."""

    def __init__(self) -> None:
        self.windows: dict[int, dict[str, Window]] = {}
        self.notes: dict[int, str] = {}
        """Why a rank tells none, in words."""
        self.signatures: Interned[Signature] = Interned()
        self.sources: Interned[str] = Interned()
        self.version = 0
        """Counts what was told."""
        self.told_s: dict[int, float] = {}
        """When each rank told all it knew of its newest collectives, or it was found what it left;
        hub clock. Not saved: what was told before a hub was away is no news of what came then."""

    def told(self, message: m.Operations, received_s: float) -> None:
        """A rank tells its newest collectives."""
        self.version += 1
        if message.note:
            self.notes[message.rank] = message.note
        else:
            self.notes.pop(message.rank, None)
            self.told_s[message.rank] = received_s
        self._take(message.rank, message.operations, received_s)

    def complete(self, rank: int, group: str, entered: int) -> None:
        """All that the rank's own code called is told: what is left up to ``entered`` is not."""
        window = self.window(rank, group)
        if window is not None and window.signatures and entered < window.end + KEPT:
            torchs = self.signatures.index(TORCHS)
            for seq in range(window.end, entered + 1):
                window.put(seq, torchs, UNKNOWN)

    def seen(self, message: m.ForeignStacks, received_s: float) -> None:
        """A sentinel tells what it found of a rank's."""
        if message.operations:
            self.version += 1
            if not message.threads:  # of one that lives it is not all
                self.told_s[message.rank] = received_s
            self._take(message.rank, message.operations, received_s)

    def left(self, rank: int, received_s: float) -> None:
        """The rank has ended; what it left behind, if anything, has come."""
        self.told_s[rank] = received_s

    def _take(self, rank: int, operations: tuple[m.Operation, ...], received_s: float) -> None:
        if max(len(self.signatures.values), len(self.sources.values)) > (
            MAX_KEPT - limits.MAX_OPERATIONS
        ):
            self.forget_all()  # too many different ones were told: what comes now is kept
        windows = self.windows.setdefault(rank, {})
        before: dict[str, int] = {}
        for operation in operations:
            signature = Signature(operation.name, operation.sizes, operation.dtype)
            if not operation.group:
                continue  # where the rank went on, between its calls
            if signature.operation.startswith(POINT_TO_POINT):
                continue
            window = windows.get(operation.group)
            if window is None:
                if len(windows) >= MAX_GROUPS_KEPT:
                    continue
                window = windows[operation.group] = Window(operation.seq, [], [])
            # Where only calls of the rank's own code are told, those between are torch's own.
            for seq in range(before.get(operation.group, operation.seq) + 1, operation.seq):
                if seq < operation.seq - KEPT or window.at(seq) != UNKNOWN:
                    continue
                window.put(seq, self.signatures.index(TORCHS), UNKNOWN)
            before[operation.group] = operation.seq
            source = self.sources.index(operation.source) if operation.source else UNKNOWN
            window.put(operation.seq, self.signatures.index(signature), source)
            if operation.state == "completed":
                window.done = max(window.done, operation.seq)
            if operation.seq == window.end - 1:
                age_s = operation.age_s if operation.age_s and operation.age_s > 0 else 0.0
                window.called_s = received_s - age_s

    def restarted(self, rank: int, group: str) -> None:
        """The group's numbers began anew: another group of the same name."""
        self.windows.get(rank, {}).pop(group, None)

    def torchs(self) -> int:
        """The index of ``TORCHS``; ``UNKNOWN`` while there is none."""
        return self.signatures.find(TORCHS)

    def window(self, rank: int, group: str) -> Window | None:
        windows = self.windows.get(rank)
        return None if windows is None else windows.get(group)

    def at(self, rank: int, group: str, seq: int) -> Signature | None:
        """What the rank did in the group as number ``seq``; None where that was not told."""
        window = self.window(rank, group)
        index = UNKNOWN if window is None else window.at(seq)
        return None if index < 0 else self.signatures.values[index]

    def source_at(self, rank: int, group: str, seq: int) -> str:
        """The user's line that called it; empty where that is not known."""
        window = self.window(rank, group)
        index = UNKNOWN if window is None else window.source(seq)
        return "" if index < 0 else self.sources.values[index]

    # --- a part of the state ------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        pass

    def forget(self, rank: int) -> None:
        self.windows.pop(rank, None)
        self.notes.pop(rank, None)
        self.told_s.pop(rank, None)
        self.version += 1

    def forget_all(self) -> None:
        self.windows.clear()
        self.notes.clear()
        self.told_s.clear()
        self.signatures = Interned()
        self.sources = Interned()
        self.version += 1

    def dump(self) -> Any:
        return {
            "windows": msgspec.to_builtins(self.windows, str_keys=False),
            "notes": self.notes,
            "signatures": self.signatures.values,
            "sources": self.sources.values,
        }

    def load(self, saved: Any) -> None:
        windows = msgspec.convert(saved["windows"], dict[int, dict[str, Window]])
        notes = msgspec.convert(saved["notes"], dict[int, str])
        signatures = msgspec.convert(saved["signatures"], list[Signature])
        sources = msgspec.convert(saved["sources"], list[str])
        for one in (window for groups in windows.values() for window in groups.values()):
            if (
                len(one.signatures) != len(one.sources)
                or max(one.signatures, default=-1) >= len(signatures)
                or max(one.sources, default=-1) >= len(sources)
            ):
                raise ValueError("a sequence names an operation that is not there")
        self.windows, self.notes = windows, notes
        self.signatures.load(signatures)
        self.sources.load(sources)
        self.version += 1
