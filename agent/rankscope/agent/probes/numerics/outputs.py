"""What a model was given and its modules gave in its last forwards, until their backward is over.

Nothing is looked at while all is well. When a loss or a gradient turns out bad, what was kept is
gone through in the order in which it was computed, and the first that is bad has a name. Of what
autograd keeps for the backward anyway there is a weak reference; the rest is kept alive, without
its graph, up to so many bytes.
"""

import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import Tensor

from rankscope.agent.probes.numerics import finite
from rankscope.agent.probes.numerics.finite import Trouble

HELD_BYTES = 64 << 20
"""Of what is kept alive."""

LARGE_BYTES = 16 << 20
"""An input beyond this is not kept alive."""

FORWARDS = 4
"""Kept: a loss may be made of several, as two towers' or an adversary's is."""

MEASURE_EVERY = 64
"""Forwards after which it is looked anew at what there is to keep."""


class Given(NamedTuple):
    """Something bad that the model was called with."""

    place: str
    microbatch: int
    trouble: Trouble


class Origin(NamedTuple):
    module: str
    note: str
    microbatch: int
    trouble: Trouble


class Usual(NamedTuple):
    """What is not finite in healthy steps, with what it is then (``-inf``)."""

    inputs: set[tuple[str, str]]
    outputs: set[tuple[str, str]]


class _Forward(NamedTuple):
    microbatch: int
    given: list[tuple[str, Any]]
    notes: list[tuple[int, Any, Any]]


class Outputs:
    """Of one model. ``names`` are those of its modules that are watched; the last is the model's.

    A note is ``(module, output, given)``: a tensor or a weak reference to one, and a weak reference
    to the first tensor that the module was called with, or None.
    """

    def __init__(self, names: list[str], spend: Callable[[float], None], usual: Usual) -> None:
        """``spend`` is told what the notes of a forward take, by the time of one of them.

        ``usual`` accuses nobody.
        """
        self.names = names
        self.spend = spend
        self.usual = usual
        self.active = False
        """Whether a forward is going on that is to be noted."""
        self.on_device: Callable[[int, Tensor], None] = lambda module, output: None
        """What is done with an output on a CUDA device, which cannot be read afterwards."""
        self._forwards: list[_Forward] = []
        self._notes: list[tuple[int, Any, Any]] = []
        self._held = [False] * len(names)  # whose outputs are kept alive here
        self._measures = False
        self._measured: list[tuple[int, Any, int]] = []
        self._begun = 0
        self._timed = 0  # the module whose notes are timed in this forward: another one each time
        self._usual = 0  # notes in the forward before

    @property
    def any(self) -> bool:
        """Whether anything is kept."""
        return bool(self._forwards)

    def begin(self, microbatch: int, given: list[tuple[str, Tensor]]) -> None:
        """A forward begins, of what is ``given``: tensors with their places.

        The oldest forward that is kept goes when there are too many.
        """
        if len(self._forwards) >= FORWARDS:
            del self._forwards[0]
        self._notes = []
        self.active = True
        # Twice at first, for the first forward may be a small one.
        self._measures = self._begun % MEASURE_EVERY == 0 or self._begun == 1
        self._begun += 1
        kept = [
            (place, tensor.detach() if tensor.nbytes <= LARGE_BYTES else weakref.ref(tensor))
            for place, tensor in given
            if tensor.is_floating_point() or tensor.is_complex()
        ]
        self._forwards.append(_Forward(microbatch, kept, self._notes))

    def end(self) -> None:
        """The forward has ended: what is alive now without us will be so in the backward.

        The rest is kept alive from now on, as far as there is room for it.
        """
        self.active = False
        if self._measures:
            self._measure()
        self._timed = self._begun % len(self.names)
        self._usual = len(self._notes)

    def _measure(self) -> None:
        sizes: dict[int, int] = {}
        gone: set[int] = set()
        for module, output, size_bytes in self._measured:
            sizes[module] = sizes.get(module, 0) + size_bytes
            found = output()
            if found is None:
                gone.add(module)
        self._measured = []
        room_bytes = HELD_BYTES // FORWARDS
        self._held = [False] * len(self.names)
        for module in sizes:
            if module in gone and sizes[module] <= room_bytes:
                room_bytes -= sizes[module]
                self._held[module] = True

    def noting(self, module: int) -> Callable[[Any, Any], None]:
        """What is called with arguments and output of ``module`` after each of its calls."""
        reference = weakref.ref
        clock = time.monotonic

        def note(args: Any, output: Any) -> None:
            if self.active:
                began_s = clock() if module == self._timed else 0.0
                if type(output) is not Tensor:
                    output = first_tensor(output)
                    if output is None:
                        return
                if output.is_cuda:
                    self.on_device(module, output)
                elif self._measures:
                    self._measured.append((module, reference(output), output.nbytes))
                output = output.detach() if self._held[module] else reference(output)
                given = args[0] if args else None
                given = reference(given) if type(given) is Tensor else None
                self._notes.append((module, output, given))
                if began_s:
                    self.spend((clock() - began_s) * self._usual)

        return note

    def clear(self) -> None:
        """Let go of everything."""
        if self._forwards:
            self._forwards = []
            self._notes = []

    def given(self) -> tuple[list[Given], bool]:
        """What is bad of what the model was given; and whether all of it could be looked at."""
        found: list[Given] = []
        whole = True
        for microbatch, kept, _ in self._forwards:
            tensors = [_tensor(one) for _, one in kept]
            there = [index for index, one in enumerate(tensors) if one is not None]
            whole = whole and len(there) == len(kept) and all(tensors[i].is_cpu for i in there)
            for at, trouble in finite.troubles([tensors[index] for index in there]):
                place = kept[there[at]][0]
                if (place, trouble.value) not in self.usual.inputs:
                    found.append(Given(place, microbatch, trouble))
        return found, whole

    def origin(self) -> Origin | None:
        """The first module in the order of computation whose output is not finite, and is else."""
        for microbatch, _, notes in self._forwards:
            for note, trouble in _troubles(notes):
                name = self.names[note[0]]
                if (name, trouble.value) not in self.usual.outputs:
                    return Origin(*self._blamed(name, note[2]), microbatch, trouble)
        return None

    def learn(self) -> Usual:
        """What is not finite although nothing was spoilt by it yet, such as a mask of -inf."""
        found = Usual(set(), set())
        for _, kept, notes in self._forwards:
            there = [(place, tensor) for place, one in kept if (tensor := _tensor(one)) is not None]
            for at, trouble in finite.troubles([tensor for _, tensor in there]):
                found.inputs.add((there[at][0], trouble.value))
            for note, trouble in _troubles(notes):
                found.outputs.add((self.names[note[0]], trouble.value))
        return found

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


def _troubles(notes: list[tuple[int, Any, Any]]) -> Iterator[tuple[tuple[int, Any, Any], Trouble]]:
    """The notes whose output is there and not finite, in the order of computation."""
    tensors = [_tensor(output) for _, output, _ in notes]
    there = [index for index, tensor in enumerate(tensors) if tensor is not None]
    for at, trouble in finite.troubles([tensors[index] for index in there]):
        yield notes[there[at]], trouble


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
