"""Which models' gradients one hook serves, and where they lie then. Pure.

A hook costs what it costs to enter Python between two kernels that have emptied the caches, 50 µs
on a virtual machine's core, whatever it does. Under DDP without bucket views every gradient stays
as this rank computed it until the backward has ended, so that one hook on one of the parameters is
enough: it orders a callback in front of DDP's, which finds all gradients where they belong. It is
on that whose gradient comes first: DDP does not wait for every parameter (some it ignores, others
were frozen when it was made), and its own callback may be ordered before the last of those.

That this is so is not assumed but seen first, with a hook on every parameter; and it is given up
for these as soon as a gradient is missing, or a forward comes without that hook having been called.
"""

import weakref
from collections.abc import Iterable
from typing import Any, Final

WHOLE: Final = 4
"""Backwards in a row that have to have brought each gradient once and left it where it was."""

MOST: Final = 4096
"""The same after it has gone wrong several times."""

Slot = tuple["weakref.ref[Any]", str, int, int]
"""Where a parameter is (a module, its name there), its index in the ledger, and its kind."""

SMALL: Final = 0
LARGE: Final = 1
ODD: Final = 2


class Together:
    """Of one model. Holds neither it nor a part of it, which may be taken out and be gone."""

    def __init__(self) -> None:
        self.allowed = False
        """Whether nobody is known to touch gradients before the callback."""
        self.slots: list[Slot] = []
        """Empty while there is a hook on every parameter."""
        self.fired = 0
        """Hooks called in the backward in work, while there is one on every parameter."""
        self.broken = False
        """Something was not as it was seen before: to be ended with the next forward."""
        self.first = -1
        """The index of the parameter whose gradient came first in the last backward."""
        self._needs = WHOLE
        self._whole = 0  # backwards in a row
        self._awaited = False  # a forward began since the hook was called

    @property
    def ready(self) -> bool:
        """Whether one hook is enough, as far as was seen."""
        return self._whole >= self._needs and self.allowed

    def begin(self, slots: Iterable[Slot]) -> None:
        """One hook serves ``slots``."""
        self.end()
        self.slots[:] = slots

    def end(self) -> None:
        """There are hooks on all parameters, or none at all."""
        self.slots.clear()
        self.broken = self._awaited = False
        self._whole = 0

    def failed(self) -> None:
        """It cannot be, or could not: the next try takes longer to come."""
        self._whole = 0
        self._needs = min(MOST, self._needs * 4)

    def doubt(self) -> None:
        """What was seen was seen of other parameters, or of another wrapper."""
        self.broken = True
        self._whole = 0

    def comes_first(self, index: int) -> None:
        """A backward begins, with this gradient; there is a hook on every parameter."""
        self.fired = 0
        if index != self.first:
            self.first = index
            self._whole = 0

    def called(self) -> None:
        """The one hook, or one of them all, in this backward for the first time."""
        self._awaited = False

    def ended(self, hooks: int, *, stay: bool) -> None:
        """A backward has ended; there are so many ``hooks``. ``stay``: gradients that were to be
        read at its end were there, and it was none within another."""
        if self.slots:
            self.broken = self.broken or not stay
        else:
            self._whole = self._whole + 1 if stay and self.fired == hooks else 0

    def goes_on(self) -> bool:
        """A forward begins: whether one hook is enough as before."""
        if self.broken or self._awaited:
            self.failed()
            return False
        self._awaited = True
        return self.allowed


def slots_of(model: Any, indices: dict[int, int], kind: Any) -> list[Slot]:
    """Where the parameters of ``indices`` (by their ids) are in ``model``; ``kind`` of each.

    Empty where some are not to be found in the modules' own tables.
    """
    left = dict(indices)
    slots: list[Slot] = []
    for module in model.modules():
        held = module.__dict__.get("_parameters")
        if not isinstance(held, dict):
            return []
        for name, parameter in held.items():
            index = left.pop(id(parameter), None)
            if index is not None:
                slots.append((weakref.ref(module), name, index, kind(parameter)))
    return [] if left else slots


def parameter_at(module: "weakref.ref[Any]", name: str) -> Any:
    """What is there now; None when nothing is, or the module is gone."""
    found = module()
    return None if found is None else found.__dict__["_parameters"].get(name)
