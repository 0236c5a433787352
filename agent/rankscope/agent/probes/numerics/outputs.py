"""What each module gave in the last forwards, kept until its backward is over. Pure bookkeeping.

Nothing is looked at while all is well. When a loss or a gradient turns out bad, what was kept is
gone through in the order in which it was computed, and the first that is bad has a name. Outputs
are kept without their graph, and only so many bytes of them; of what goes beyond there is a weak
reference, which lasts as long as autograd needs the tensor for the backward.
"""

import weakref
from collections import deque
from typing import Any, NamedTuple

from torch import Tensor

from rankscope.agent.probes.numerics import finite
from rankscope.agent.probes.numerics.finite import Trouble

HELD_BYTES = 64 << 20
"""Of outputs that are kept alive."""

FORWARDS = 4
"""Kept: a loss may be made of several, as two towers' or an adversary's is."""


class Kept(NamedTuple):
    module: int
    output: Any
    """A tensor, or a weak reference to one."""
    given: Any
    """A weak reference to the first tensor it was called with; None where there was none."""


class Origin(NamedTuple):
    module: str
    microbatch: int
    trouble: Trouble
    note: str


class Outputs:
    """Of one model. ``names`` are those of its modules that are watched."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self._forwards: deque[tuple[int, list[Kept]]] = deque(maxlen=FORWARDS)
        self._kept: list[Kept] = []
        self._room_bytes = HELD_BYTES

    @property
    def any(self) -> bool:
        """Whether anything is kept."""
        return bool(self._forwards)

    def begin(self, microbatch: int) -> None:
        """A forward begins; the oldest one that is kept goes when there are too many."""
        if len(self._forwards) == FORWARDS:
            self._room_bytes += sum(_held_bytes(kept) for kept in self._forwards[0][1])
        self._kept = []
        self._forwards.append((microbatch, self._kept))

    def keep(self, module: int, args: Any, output: Any) -> None:
        """``module`` was called with ``args`` and gave ``output``."""
        tensor = output if type(output) is Tensor else first_tensor(output)
        if tensor is None or not tensor.is_floating_point() or not tensor.dim():
            return  # a scalar is a loss, which is looked at as such
        given = args[0] if args else None
        size = tensor.nbytes
        kept: Any
        if size <= self._room_bytes and tensor.is_cpu:
            self._room_bytes -= size
            kept = tensor.detach()
        else:
            kept = weakref.ref(tensor)
        self._kept.append(Kept(module, kept, weakref.ref(given) if type(given) is Tensor else None))

    def clear(self) -> None:
        """Let go of everything."""
        if self._forwards:
            self._forwards.clear()
            self._kept = []
            self._room_bytes = HELD_BYTES

    def origin(self) -> Origin | None:
        """The first module in the order of computation whose output is not finite."""
        for microbatch, forward in self._forwards:
            tensors = [_tensor(kept.output) for kept in forward]
            there = [index for index, tensor in enumerate(tensors) if tensor is not None]
            found = finite.troubles([tensors[index] for index in there])
            if found:
                index, trouble = there[found[0][0]], found[0][1]
                name, note = self._blamed(forward[index])
                return Origin(name, microbatch, trouble, note)
        return None

    def _blamed(self, kept: Kept) -> tuple[str, str]:
        """The module that made the bad number of ``kept``, and what is to be said of that.

        One that was given something bad already is not its origin: that is then the code of the
        module around it, between the modules that it calls.
        """
        name = self.names[kept.module]
        given = _tensor(kept.given)
        if given is None or finite.trouble(given) is None:
            return name, ""
        parent = name.rpartition(".")[0]
        while parent and parent.rpartition(".")[2].isdigit() and parent not in self.names:
            parent = parent.rpartition(".")[0]
        return parent, f"in its own code, before it calls {name}"


def _tensor(kept: Any) -> Tensor | None:
    if isinstance(kept, weakref.ref):
        found: Tensor | None = kept()
        if found is None:
            return None
        found._fix_weakref()  # type: ignore[attr-defined]
        return found
    return kept if isinstance(kept, Tensor) else None


def _held_bytes(kept: Kept) -> int:
    return kept.output.nbytes if isinstance(kept.output, Tensor) else 0


def first_tensor(value: Any, depth: int = 2) -> Tensor | None:
    """The first plain tensor of floating numbers within a tuple, list or dictionary."""
    if type(value) is Tensor:
        return value if value.is_floating_point() else None
    if depth and isinstance(value, dict):
        value = tuple(value.values())
    if depth and isinstance(value, tuple | list):
        for one in value[:8]:
            found = first_tensor(one, depth - 1)
            if found is not None:
                return found
    return None
