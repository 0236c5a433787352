"""After a restart: whether each step's loss and data are to the bit what they were before.

Every rank's losses and fingerprints of its newest steps are kept. When a later life of the rank
tells of a step that is known, the two are compared.
"""

import struct
import zlib
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankscope.hub.state.columns import MAX_SIZE, Integers
from rankscope.protocol import messages as m

LEAST_STEPS, MOST_STEPS = 16, 512
CELLS = 1 << 19
"""Steps times ranks that are kept: 14 MB of them."""

SAVED_CELLS, SAVED_STEPS = 1 << 15, 128
"""Of these so many at most, of the newest steps, outlive a restart of the hub: a snapshot stays
small."""

SLACK_STEPS = 64
"""So far behind the last step that was known a rank may be before it is waited for no longer: what
it told of a step may have been lost."""

NONE = -(1 << 63)
"""For a loss or a fingerprint that was not told. As a loss it would be -0.0, which is kept as 0."""

BATCH, LOSS = "batch", "loss"
WHATS = (BATCH, LOSS)
"""In this order: other data make another loss."""

_FLOAT, _BITS = struct.Struct("<d"), struct.Struct("<q")


class Difference(msgspec.Struct):
    """The first step at which something was not as before."""

    step: int
    rank: int
    what: str
    before: int
    """A fingerprint, or the bits of a loss."""
    now: int

    def order(self) -> tuple[int, int, int]:
        return self.step, WHATS.index(self.what), self.rank


class Rings:
    """What each rank told of its newest steps, shape (ranks, kept); by cell through memoryviews,
    which cost half of what numpy does."""

    NAMES = ("step", "life", "loss", "batch")

    def __init__(self, size: int, kept: int) -> None:
        self.size, self.kept = size, kept
        self.arrays = {name: np.zeros((size, kept), dtype=np.int64) for name in self.NAMES}
        cells: list[Any] = [memoryview(array) for array in self.arrays.values()]  # type: ignore[arg-type]
        self.step, self.life, self.loss, self.batch = cells


class Parity:
    """Rings by rank; the step ``n`` is in column ``n % kept``. A part of the state."""

    def __init__(self) -> None:
        self.kept = MOST_STEPS
        self.world_size = 0
        self.lives = 0
        """How often the ranks began anew."""
        self._own: Integers = np.zeros(0, dtype=np.int64)  # the same, of each rank
        self._same_attempt = False
        self._now = Rings(0, MOST_STEPS)
        self._past: Rings | None = None
        self._begin()

    def _begin(self) -> None:
        self.equal: dict[int, int] = {}
        """By step, on how many ranks the loss was the same."""
        self.batches: set[int] = set()
        """Steps with a rank whose fingerprint was the same."""
        self.difference: Difference | None = None
        self.first = 0
        """The first step that was compared."""
        self.until = 0
        """The last step that the lives before reached."""
        self.newest = 0
        """The last step that this one reached."""
        self._looked: tuple[list[int], bool, bool] | None = None
        self.other_world: tuple[int, int] | None = None
        """Ranks before and now, where they are not as many: then nothing is compared."""

    # --- what ranks say -----------------------------------------------------------------------

    def record(self, rank: int, record: m.StepRecord, world_size: int) -> None:
        """Take in one completed step of ``rank``, one of ``world_size``."""
        if world_size != self.world_size:
            self._other_world(world_size)
        step, at, now = record.step, record.step % self.kept, self._now
        life = self._own.item(rank)
        loss = NONE if record.loss is None else bits(record.loss)
        batch = NONE if record.fingerprint is None else record.fingerprint
        if self.lives:
            if not self.newest and self._same_attempt and step == 1:
                self._forget_lives_before()  # another training in the same process
            if now.step[rank, at] == step and now.life[rank, at] != life:
                self._again(rank, step, loss, batch)
        now.step[rank, at], now.life[rank, at] = step, life
        now.loss[rank, at], now.batch[rank, at] = loss, batch
        if step > self.newest:
            if step > self.until + SLACK_STEPS >= self.newest:
                self._looked = None
            self.newest = step

    def late(self, rank: int, step: int, loss: float | None) -> None:
        """A loss that came off the device after its step's record."""
        at, now = step % self.kept, self._now
        if loss is None or now.step[rank, at] != step or now.loss[rank, at] != NONE:
            return
        now.loss[rank, at] = found = bits(loss)
        past = self._past
        if past is not None and past.step[rank, at] == step:
            self._compare(rank, step, LOSS, past.loss[rank, at], found)

    def _again(self, rank: int, step: int, loss: int, batch: int) -> None:
        now, at = self._now, step % self.kept
        if self._past is None:
            self._past = Rings(now.size, now.kept)
        past = self._past
        past.step[rank, at], past.life[rank, at] = step, now.life[rank, at]
        past.loss[rank, at], past.batch[rank, at] = now.loss[rank, at], now.batch[rank, at]
        if self.first == 0 or step < self.first:
            self.first = step
        self._compare(rank, step, BATCH, now.batch[rank, at], batch)
        self._compare(rank, step, LOSS, now.loss[rank, at], loss)

    def _compare(self, rank: int, step: int, what: str, before: int, now: int) -> None:
        self._looked = None
        if before == NONE or now == NONE:
            return
        if before != now:
            found = Difference(step, rank, what, before, now)
            if self.difference is None or found.order() < self.difference.order():
                self.difference = found
        elif what == LOSS:
            self.equal[step] = self.equal.get(step, 0) + 1
        else:
            self.batches.add(step)

    def _other_world(self, world_size: int) -> None:
        if self.world_size and world_size and self.lives:
            self.other_world = (self.world_size, world_size)
            self._forget_lives_before()
        self.world_size = world_size

    def _forget_lives_before(self) -> None:
        arrays = self._now.arrays
        arrays["step"][arrays["life"] != self._own[:, None]] = 0

    # --- what came of it ----------------------------------------------------------------------

    def complete(self) -> list[int]:
        """The steps before the first difference that were equal on every rank that knew them."""
        return self._look()[0]

    def over(self) -> bool:
        """Whether nothing more will be compared."""
        return self._look()[1]

    def settled(self) -> bool:
        """Whether no difference can turn up any more before the one that is known."""
        return self._look()[2]

    def _look(self) -> tuple[list[int], bool, bool]:
        """All three, worked out anew when something was compared since."""
        if self._looked is None:
            waiting, found = self._waiting(), self.difference
            last = self.newest + 1 if found is None else found.step
            equal = [step for step in sorted(self.equal) if step < last and step not in waiting]
            passed = self.newest > self.until + SLACK_STEPS
            over = bool(self.first) and (passed or not waiting)
            settled = found is not None and min(waiting, default=found.step) >= found.step
            self._looked = equal, over, settled
        return self._looked

    def _waiting(self) -> set[int]:
        """Steps that a rank has told in a life before and not in this one, from ``first`` on."""
        arrays = self._now.arrays
        step = arrays["step"]
        old = (arrays["life"] != self._own[:, None]) & (step >= max(1, self.first))
        return set(np.unique(step[old & (arrays["loss"] != NONE)]).tolist())

    # --- a part of the state ------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        known = len(self._own)
        if size <= known:
            return
        kept = max(LEAST_STEPS, min(MOST_STEPS, CELLS // size))
        grown = Rings(size, kept)
        if kept == self.kept:
            for name, array in self._now.arrays.items():
                grown.arrays[name][:known] = array
        own = np.full(size, self.lives, dtype=np.int64)
        own[:known] = self._own
        self.kept, self._now, self._own, self._past = kept, grown, own, None

    def forget(self, rank: int) -> None:
        life = self._own.item(rank) + 1
        if life > self.lives:
            self._anew(same_attempt=True)
        self._own[rank] = life

    def forget_all(self) -> None:
        self._anew(same_attempt=False)
        self._own[:] = self.lives

    def _anew(self, *, same_attempt: bool) -> None:
        """A life begins: what it is compared with is all that was told until now."""
        self._begin()
        self._same_attempt = same_attempt
        self.lives += 1
        self.until = int(self._now.arrays["step"].max(initial=0))
        self._past = None

    def dump(self) -> Any:
        size, arrays = len(self._own), self._now.arrays
        steps = arrays["step"].max(axis=0, initial=0)
        count = min(SAVED_STEPS, SAVED_CELLS // max(1, size), int(np.count_nonzero(steps)))
        newest = np.argsort(steps)[self.kept - count :]
        return {
            "kept": self.kept,
            "world_size": self.world_size,
            "lives": self.lives,
            "own": self._own.tobytes(),
            "columns": newest.astype(np.int64).tobytes(),
            "rings": {name: pressed(array[:, newest]) for name, array in arrays.items()},
            "equal": self.equal,
            "batches": sorted(self.batches),
            "difference": msgspec.to_builtins(self.difference),
            "first": self.first,
            "until": self.until,
            "newest": self.newest,
            "other_world": self.other_world,
        }

    def load(self, saved: Any) -> None:
        own = np.frombuffer(saved["own"], dtype=np.int64)
        columns = np.frombuffer(saved["columns"], dtype=np.int64)
        kept = msgspec.convert(saved["kept"], int)
        fits = LEAST_STEPS <= kept <= MOST_STEPS and len(own) <= MAX_SIZE
        if not fits or columns.max(initial=0) >= kept or columns.min(initial=0) < 0:
            raise ValueError("parity of other ranks")
        rings = Rings(len(own), kept)
        for name, array in rings.arrays.items():
            array[:, columns] = unpressed(saved["rings"][name], len(own), len(columns))
        self.kept, self._own, self._now, self._past = kept, own.copy(), rings, None
        self.world_size = msgspec.convert(saved["world_size"], int)
        self.lives = msgspec.convert(saved["lives"], int)
        self.equal = msgspec.convert(saved["equal"], dict[int, int])
        self.batches = msgspec.convert(saved["batches"], set[int])
        self.difference = msgspec.convert(saved["difference"], Difference | None)
        self.first = msgspec.convert(saved["first"], int)
        self.until = msgspec.convert(saved["until"], int)
        self.newest = msgspec.convert(saved["newest"], int)
        self._looked = None
        self.other_world = msgspec.convert(saved["other_world"], tuple[int, int] | None)


def pressed(array: NDArray[np.int64]) -> bytes:
    return zlib.compress(array.tobytes(), 1)


def unpressed(raw: bytes, rows: int, columns: int) -> NDArray[np.int64]:
    """Raises ValueError for what is not so many numbers."""
    size = rows * columns * 8
    try:
        found = zlib.decompressobj().decompress(raw, size + 1)
    except zlib.error as error:
        raise ValueError("parity that cannot be read") from error
    if len(found) != size:
        raise ValueError("parity of another size")
    return np.frombuffer(found, dtype=np.int64).reshape(rows, columns)


def bits(loss: float) -> int:
    """The bits of a loss, as an integer: equal for equal ones, NaN among them."""
    found: int = _BITS.unpack(_FLOAT.pack(loss))[0]
    return 0 if found == NONE else found


def loss_of(kept: int) -> float:
    """The loss of these ``bits``."""
    found: float = _FLOAT.unpack(_BITS.pack(kept))[0]
    return found
