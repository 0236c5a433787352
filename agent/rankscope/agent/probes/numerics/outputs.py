"""What the modules of a model gave in its last forwards, kept until their backward is over.

Nothing is looked at while all is well. When a loss or a gradient turns out bad, what was kept is
gone through in the order in which it was computed, and the first that is bad has a name. Outputs
are kept without their graph, and only so many bytes of them; of what goes beyond there is a weak
reference, which lasts as long as autograd needs the tensor for the backward.
"""

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from rankscope.agent.probes.numerics import finite
from rankscope.agent.probes.numerics.finite import Trouble

HELD_BYTES = 64 << 20
"""Of outputs that are kept alive."""

FORWARDS = 4
"""Kept: a loss may be made of several, as two towers' or an adversary's is."""

MEASURE_EVERY = 64
"""Forwards after which sizes are looked at again."""


class Origin(NamedTuple):
    module: str
    microbatch: int
    trouble: Trouble
    note: str


class Outputs:
    """Of one model. ``names`` are those of its modules that are watched; the last is the model's.

    A note is ``(module, output, given)``: a tensor or a weak reference to one, and a weak reference
    to the first tensor that the module was called with, or None.
    """

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.active = False
        """Whether a forward is going on that is to be noted."""
        self._forwards: list[tuple[int, list[tuple[int, Any, Any]]]] = []
        self._notes: list[tuple[int, Any, Any]] = []
        self._held = [False] * len(names)  # whose outputs are small enough to be kept alive
        self._begun = 0
        self._room_bytes = 0

    @property
    def any(self) -> bool:
        """Whether anything is kept."""
        return bool(self._forwards)

    def begin(self, microbatch: int) -> None:
        """A forward begins; the oldest one that is kept goes when there are too many."""
        if len(self._forwards) >= FORWARDS:
            del self._forwards[0]
        self._notes = []
        self._forwards.append((microbatch, self._notes))
        self.active = True
        if self._begun % MEASURE_EVERY < 2:  # twice, for the first forward may be a small one
            self._held = [False] * len(self.names)
            self._room_bytes = HELD_BYTES // FORWARDS
        self._begun += 1

    def noting(self, module: int) -> Callable[[Any, Any], None]:
        """What is called with arguments and output of ``module`` after each of its calls."""
        reference = weakref.ref

        def note(args: Any, output: Any) -> None:
            if self.active:
                if type(output) is not Tensor:
                    output = first_tensor(output)
                    if output is None:
                        return
                given = args[0] if args else None
                self._notes.append(
                    (
                        module,
                        output.detach() if self._held[module] else self._kept(module, output),
                        reference(given) if type(given) is Tensor else None,
                    )
                )

        return note

    def _kept(self, module: int, output: Tensor) -> Any:
        """The output itself while there is room for it, then a weak reference."""
        size = output.nbytes
        if output.is_cpu and size <= self._room_bytes:
            self._room_bytes -= size
            self._held[module] = True
            return output.detach()
        return weakref.ref(output)

    def clear(self) -> None:
        """Let go of everything."""
        if self._forwards:
            self._forwards = []
            self._notes = []

    def origin(self) -> Origin | None:
        """The first module in the order of computation whose output is not finite."""
        for microbatch, notes in self._forwards:
            tensors = [_tensor(output) for _, output, _ in notes]
            there = [index for index, tensor in enumerate(tensors) if tensor is not None]
            found = finite.troubles([tensors[index] for index in there])
            for first, trouble in found[:1]:
                module, _, given = notes[there[first]]
                name, note = self._blamed(self.names[module], given)
                return Origin(name, microbatch, trouble, note)
        return None

    def _blamed(self, name: str, given: Any) -> tuple[str, str]:
        """The module that made a bad number, and what is to be said of that.

        One that was given something bad already is not its origin: that is then the code of the
        module around it, between the modules that it calls.
        """
        tensor = _tensor(given)
        if not name or tensor is None or finite.trouble(tensor) is None:
            return name, ""
        parent = name.rpartition(".")[0]
        while parent and parent not in self.names:  # a list of modules has no code
            parent = parent.rpartition(".")[0]
        return parent, f"in its own code, before it calls {name}"


def _tensor(kept: Any) -> Any:
    if isinstance(kept, weakref.ref):
        kept = kept()
        if kept is not None:
            kept._fix_weakref()
    return kept


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
