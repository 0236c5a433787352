"""How the ranks of one save hear of each other: a few keys in torch's own store.

Not a process group: what the ranks have to say are a few words, and a store can lose a rank without
being lost itself. After a rank was killed or stopped in a save, the next save works as if nothing
had been. No key is ever waited for inside the store: it is only asked.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

ASK_EVERY_S = (0.01, 0.25)
"""Between two looks at the store: at first, and in the end."""

PULSE_S = 2.0
"""A rank in a save says this often that it is there; seldomer in a large world."""

SILENT_S = 15.0
"""A rank that has begun and then says nothing for so long is given up, and the save with it."""

PULSES_PER_S = 2000.0


class Store(Protocol):
    """What is used of ``torch.distributed.Store``."""

    def set(self, key: str, value: bytes) -> None: ...

    def get(self, key: str) -> bytes: ...

    def add(self, key: str, amount: int) -> int: ...

    def check(self, keys: list[str]) -> bool: ...

    def multi_get(self, keys: list[str]) -> list[bytes]: ...

    def delete_key(self, key: str) -> bool: ...


class Failed(Exception):
    """The save has failed, here or on another rank; the text says where and why.

    ``rank`` (-1: none in particular) was in ``phase`` when it did.
    """

    def __init__(self, text: str, rank: int = -1, phase: str = "") -> None:
        super().__init__(text)
        self.rank, self.phase = rank, phase


class Arrival(NamedTuple):
    """A rank has written its part: the receipt's length and CRC-32, as it left them."""

    rank: int
    size_bytes: int
    crc32: int


class Outcome(NamedTuple):
    """What came of a save, the same on all ranks that heard of it."""

    ok: bool
    step: int
    request: int
    path: str
    """Of the checkpoint; empty when there is none."""
    text: str
    """In words."""
    size_bytes: int = 0
    rank: int = -1
    """Where it failed, if it was one rank; -1 if not."""
    phase: str = ""
    """Of that rank."""
    notfinite: str = ""
    """What the checkpoint holds that is not finite, in words; empty when nothing is known of."""


class Meeting:
    """One save as one rank takes part in it; ``prefix`` is the same on all ranks, and new.

    Below ``everybody``, the same for all saves, each rank says which step it saves, so that those
    that will never meet find out.

    ``deadline_s`` is monotonic. All methods but :meth:`pulse` are for one thread. What they raise
    is :class:`Failed`; what the store raises is passed on as it.
    """

    def __init__(
        self,
        store: Any,
        prefix: str,
        rank: int,
        world_size: int,
        deadline_s: float,
        cancelled: threading.Event,
        silent_s: float = SILENT_S,
        step: int = 0,
        everybody: str = "",
    ) -> None:
        self._store: Store = store
        self._prefix = prefix
        self._step = step
        self._everybody = everybody or prefix
        self.rank, self.world_size = rank, world_size
        self._deadline_s = deadline_s
        self._cancelled = cancelled
        self._pulses = 0
        self.phase = ""
        """Of this rank; told to the others with each pulse."""
        self.pulse_s = max(min(PULSE_S, silent_s / 5), world_size / PULSES_PER_S)
        self._silent_s = max(silent_s, 4 * self.pulse_s)
        self._seen: dict[int, tuple[bytes, float]] = {}
        self._looked_s = -1e9

    def begin(self) -> None:
        """This rank takes part."""
        self.pulse()  # first: who is at a later step and not here is taken for lost
        self._store.set(f"{self._everybody}/at/{self.rank}", b"%d" % self._step)

    def pulse(self) -> None:
        """Say that this rank is at it. From a thread that nothing in the save can hold up."""
        self._pulses += 1
        self._store.set(self._key(f"pulse/{self.rank}"), f"{self._pulses} {self.phase}".encode())

    def open(self, name: str) -> None:
        """Rank 0: the directory ``name`` is there to be written to."""
        self._store.set(self._key("folder"), name.encode())

    def folder(self) -> str:
        """The name of the directory to write to, once rank 0 has made it."""
        self._until(lambda: self._store.check([self._key("folder")]), [0], "making a directory")
        return self._store.get(self._key("folder")).decode()

    def arrive(self, size_bytes: int, crc32: int) -> None:
        """This rank's file and receipt are on the disk."""
        arrival = msgspec.msgpack.encode((self.rank, size_bytes, crc32))
        self._store.set(self._key(f"arrived/{self.rank}"), arrival)
        self._store.add(self._key("arrived"), 1)

    def arrivals(self) -> list[Arrival]:
        """Rank 0: what all ranks have arrived with, in the order of ranks, once all have."""
        everyone = range(self.world_size)
        self._until(
            lambda: self._store.add(self._key("arrived"), 0) >= self.world_size,
            everyone,
            "writing its part",
        )
        found = self._store.multi_get([self._key(f"arrived/{rank}") for rank in everyone])
        return [Arrival(*msgspec.msgpack.decode(one)) for one in found]

    def fail(self, error: Failed) -> Failed:
        """Tell the others that this rank cannot go on. The first one to say so is heard.

        Returns that: what comes later, such as a directory that is gone, is but its consequence.
        """
        if self._store.add(self._key("failures"), 1) == 1:
            told = msgspec.msgpack.encode((str(error), error.rank, error.phase))
            self._store.set(self._key("failed"), told)
            return error
        for _ in range(100):  # it is set just after it was counted
            if self._store.check([self._key("failed")]):
                return Failed(*msgspec.msgpack.decode(self._store.get(self._key("failed"))))
            time.sleep(0.01)
        return error

    def announce(self, outcome: Outcome) -> None:
        """Rank 0: tell everybody what came of it."""
        self._store.set(self._key("outcome"), msgspec.msgpack.encode(tuple(outcome)))

    def outcome(self) -> Outcome:
        """What came of it, once rank 0 says so."""
        self._until(
            lambda: self._store.check([self._key("outcome")]),
            [0],
            "putting the parts together",
            heed_failures=False,
        )
        return Outcome(*msgspec.msgpack.decode(self._store.get(self._key("outcome"))))

    def forget(self) -> None:
        """Rank 0, once no rank asks any more: take the keys of this save out of the store."""
        names = ["folder", "arrived", "failures", "failed", "outcome"]
        names += [f"{what}/{rank}" for what in ("pulse", "arrived") for rank in self._ranks()]
        for name in names:
            self._store.delete_key(self._key(name))

    def _ranks(self) -> range:
        return range(self.world_size)

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    def _until(
        self,
        there: Callable[[], bool],
        awaited: Sequence[int],
        what: str,
        heed_failures: bool = True,
    ) -> None:
        pause_s, longest_s = ASK_EVERY_S
        while not there():
            now_s = time.monotonic()
            if heed_failures and self._store.check([self._key("failed")]):
                raise Failed(*msgspec.msgpack.decode(self._store.get(self._key("failed"))))
            if self._cancelled.is_set():
                raise Failed("cancelled")
            self._listen(awaited, what, now_s)
            if now_s > self._deadline_s:
                raise self._late(awaited)
            self._cancelled.wait(min(pause_s, self._deadline_s - now_s + 0.001))
            pause_s = min(pause_s * 1.5, longest_s)

    def _listen(self, awaited: Sequence[int], what: str, now_s: float) -> None:
        """Raise :class:`Failed` when one of the ranks that are awaited has fallen silent."""
        if now_s - self._looked_s < self.pulse_s:
            return
        if now_s - self._looked_s > 3 * self.pulse_s:
            # This process was stopped, perhaps with all others; or it has not listened meanwhile.
            self._seen = {rank: (pulse, now_s) for rank, (pulse, _) in self._seen.items()}
        self._looked_s = now_s
        for rank in awaited:
            key = self._key(f"pulse/{rank}")
            if rank == self.rank:
                continue
            if not self._store.check([key]):
                self._refuse_other_step(rank)
                continue
            pulse = self._store.get(key)
            known, since_s = self._seen.get(rank, (b"", now_s))
            if pulse != known:
                self._seen[rank] = pulse, now_s
            elif now_s - since_s > self._silent_s and not self._done(rank):
                phase = pulse.decode().partition(" ")[2]
                raise Failed(
                    f"rank {rank} has said nothing for {now_s - since_s:.0f} s while {what}",
                    rank,
                    phase,
                )

    def _refuse_other_step(self, rank: int) -> None:
        """Raise :class:`Failed` when ``rank``, which is not here, has gone on to a later save."""
        key = f"{self._everybody}/at/{rank}"
        if self._store.check([key]) and int(self._store.get(key)) > self._step:
            step = self._store.get(key).decode()
            raise Failed(
                f"rank {rank} saves step {step} and rank {self.rank} step {self._step}: their "
                "counts of steps differ"
            )

    def _done(self, rank: int) -> bool:
        return rank != 0 and self._store.check([self._key(f"arrived/{rank}")])

    def _late(self, awaited: Sequence[int]) -> Failed:
        if list(awaited) == [0]:
            return Failed("timed out waiting for rank 0", 0)
        absent = [r for r in awaited if not self._store.check([self._key(f"arrived/{r}")])]
        begun = [r for r in absent if self._store.check([self._key(f"pulse/{r}")])]
        never = [r for r in absent if r not in begun]
        told = f"timed out waiting for {_some(absent)}"
        if never:
            told += f"; {_some(never)} never began this save"
        return Failed(told, absent[0] if len(absent) == 1 else -1)


def _some(ranks: Sequence[int]) -> str:
    shown = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:8]))}"
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"
