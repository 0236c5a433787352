"""What was seen of this rank's own gradients in the step in work, and what is said of it.

One for each process. Values of a CPU are worked out at once; those of a GPU when they have come off
it (``late``), by the same rules, under the number of the step they are of.
"""

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from rankscope.agent import events
from rankscope.agent.probes.gradients import measure
from rankscope.agent.probes.gradients.glance import Glances, Part
from rankscope.agent.probes.gradients.outliers import Outliers
from rankscope.agent.probes.gradients.turns import Turns
from rankscope.protocol import limits
from rankscope.protocol.messages import ParameterNorm, Sign, Stage

ARMED_STEPS: Final = 8
"""Steps after the last sign in which reduced gradients are looked at without another reason, and
after that or a norm that left its past in which no gradient is left out."""


class Ledger:
    """Norms by parameter; a parameter is an index into ``names``."""

    def __init__(self, observer: Any) -> None:
        self.observer = observer
        self.names: list[str] = []
        self.norms: dict[int, float] = {}
        """Of the gradients of the step in work, as they were last seen in it."""
        self.number = 0
        """The note's number of the step that ``norms`` is of."""
        self.last: tuple[int, dict[int, float]] = (0, {})
        """The same of the last step in which there were gradients."""
        self.norm: float | None = None
        """The global norm of the step in work so far, unscaled."""
        self.suspicious = False
        """Whether the reduced gradients of this step are to be looked at, one by one."""
        self.scale: Callable[[], float | None] = lambda: None
        """The gradient scaler's factor, where it can be read at once."""
        self.scaled: Callable[[], bool] = lambda: False
        """Whether a gradient scaler is at work."""
        self.bad: dict[int, int] = {}
        """Parameters that are bad in the step in work, by the microbatch in which that was seen."""
        self.bad_before: dict[int, int] = {}
        self.kept: set[int] = set()
        """Parameters whose gradient was bad before the step's first backward: never cleared."""
        self.turns = Turns()
        self.partial = False
        """Whether large gradients were left out in the step in work."""
        self._outliers = Outliers()
        self._left = -ARMED_STEPS  # the number of the last step whose norm left its past
        self._glances = Glances()
        self._struck = False  # whether one that was to be left out is read in the step in work
        self._told = 0  # the number of the step whose norms were sent
        self._indices: dict[tuple[int, str], int] = {}
        self._backwards = 0  # in the step in work
        self._cast: set[int] = set()  # parameters that did not survive a cast in it

    def index(self, owner: int, name: str) -> int:
        """The parameter of this name of that model; the same one if it is known already."""
        index = self._indices.setdefault((owner, name), len(self.names))
        if index == len(self.names):
            self.names.append(sys.intern(name))
        return index

    def forget(self, owner: int) -> None:
        """That model is gone. An index is never given to another parameter: what comes late of a
        GPU may still be told by it."""
        indices = {key: index for key, index in self._indices.items() if key[0] == owner}
        for key, index in indices.items():
            del self._indices[key]
            self.turns.forget(index)

    @property
    def microbatch(self) -> int:
        """The microbatch in work, from 1; by its backwards, where its forwards are not seen."""
        return self.observer.microbatch or self._backwards

    def begin(self) -> None:
        """Gradients of a microbatch are about to come."""
        number = self.observer.number
        if number == self.number:
            self._backwards += 1
            return
        self._backwards = 1
        every = self.turns.every
        self.turns.begin(self.number, number, time.monotonic())
        if self.turns.every != every:
            self.observer.facts_changed = True
        if self.norms and not self.partial:
            self.last = (self.number, self.norms)
            self._glances.read()
            if self.norm is not None:
                self._outliers.completed(self.norm)
        self.norm = None
        self.partial = self._struck = False
        self.number, self.norms = number, {}
        self.bad_before, self.bad = self.bad, {}
        if not self.bad_before:
            self.kept.clear()
        self.suspicious = False
        self._cast.clear()

    def saw(
        self,
        indices: Sequence[int],
        tensors: Sequence[torch.Tensor],
        norms: Sequence[float],
        cast: torch.dtype | None = None,
        summed: bool = False,
    ) -> None:
        """Gradients that are on the CPU, and their norms.

        ``cast`` is the type in which they are reduced, where it is another one; ``summed``: they
        are in that type already, added up over microbatches.
        """
        norms_sum = sum(norms)
        limit = measure.closely(cast)
        if norms_sum < limit:  # false for NaN, too
            self.norms.update(zip(indices, norms, strict=True))
            return
        for index, tensor, norm in zip(indices, tensors, norms, strict=True):
            if norm < limit:
                self.norms[index] = norm
            else:
                self.norms[index] = self._look(index, tensor, norm, cast, summed)

    def _look(
        self,
        index: int,
        tensor: torch.Tensor,
        norm: float,
        cast: torch.dtype | None,
        summed: bool,
    ) -> float:
        """Look closely at a gradient with a large or non-finite norm; returns its true norm."""
        self.suspicious = True
        found = None
        if norm != norm and not self.observer.signs.wanted(Stage.GRADIENT, self.microbatch):
            found = measure.Bad("nan", 0)  # only counted: which elements is dear, and not told
        elif not math.isfinite(norm):
            found = measure.bad(tensor)
        if found is not None and summed and index not in self.bad and found.value != "nan":
            self.cast(index, math.inf, tensor.dtype)  # each microbatch's own was finite
            return self.norms.get(index, math.inf)
        if found is not None:
            self._bad(index, found)
            return math.nan if found.value == "nan" else math.inf
        if math.isinf(norm):  # its squares left the range of fp32, it did not
            norm = float(measure.norm(tensor))
        if cast is not None and cast in measure.LARGEST:
            magnitude = measure.largest(tensor)
            if magnitude > measure.LARGEST[cast]:
                self.cast(index, magnitude, cast)
        return norm

    def _bad(self, index: int, found: measure.Bad) -> None:
        if index in self.bad:
            return
        microbatch = self.microbatch
        self.bad[index] = microbatch
        note = ""
        if index in self.kept:
            note = "so before this backward already: it was not cleared"
        self.observer.signs.add(
            Stage.GRADIENT,
            self.names[index],
            microbatch=microbatch,
            value=found.value,
            count=found.elements,
            note=note or self.scaler_note(),
        )

    def cast(self, index: int, magnitude: float, dtype: torch.dtype) -> None:
        """A finite gradient that is not finite in ``dtype``, in which it is reduced."""
        if index in self._cast:
            return
        self._cast.add(index)
        name = str(dtype).removeprefix("torch.")
        note = f"added up in {name}"
        if math.isfinite(magnitude):
            note = f"largest {magnitude:.3g}, {name} ends at {measure.LARGEST[dtype]:.5g}"
        self.observer.signs.add(
            Stage.CAST,
            self.names[index],
            microbatch=self.microbatch,
            value="inf",
            note="; ".join(part for part in (note, self.scaler_note()) if part),
        )

    @property
    def leaves_out(self) -> bool:
        """Whether large gradients on a CPU are not read now."""
        signs = self.observer.signs
        return (
            self.turns.left_out
            and not self.observer.cuda
            and not signs.bad
            and not 0 <= signs.steps_since < ARMED_STEPS
            and not self.number - self._left <= ARMED_STEPS
        )

    def glance(self, indices: Sequence[int], gradients: Sequence[Any]) -> list[Part]:
        """The parts of large gradients that are left out, by which it is told whether to read."""
        return self._glances.at(indices, gradients, self.number, self.last[1])

    def struck(self, glanced: Sequence[Part], norms: Sequence[float]) -> set[int]:
        """Of large gradients that are left out: those that look as if they had to be read."""
        struck = self._glances.strike(glanced, norms, self.last[1])
        self._struck = self._struck or bool(struck)
        return struck

    def wants_reduced(self) -> bool:
        """Whether there is a reason to look at the reduced gradients of this step."""
        return self.suspicious or 0 <= self.observer.signs.steps_since < ARMED_STEPS

    def scaler_note(self) -> str:
        """``scaler`` where a gradient scaler is at work, which overflows in ordinary runs."""
        return "scaler" if self.scaled() else ""

    def end(self) -> None:
        """The microbatch's gradients are all there."""
        if not self.norms:
            return
        signs = self.observer.signs
        scale = self.scale()
        if scale:
            self.observer.more["loss_scale"] = scale
        if not self.partial:
            signs.looked(Stage.GRADIENT)
        if not self.partial or self._struck:
            norm = measure.total(tuple(self.norms.values())) / (scale or 1.0)
            # What was left out makes it no smaller: a part that leaves the past alone is told.
            if not self.partial or self._outliers.leaves(norm):
                self.observer.more["local_norm"] = self.norm = norm
        if signs.bad:
            signs.publish()
            if self.bad and not self.bad_before:
                self.tell()
        elif self.norm is not None and self._outliers.leaves(self.norm):
            self._left = self.number
            self.tell(before=True)

    def tell(self, before: bool = False) -> None:
        """Send the norms of all parameters in the step in work, and in the one ``before`` it."""
        if self._told == self.number:
            return
        self._told = self.number
        if before and self.last[1]:
            self.send(*self.last)
        self.send(self.number, self.norms)

    def send(self, number: int, norms: dict[int, float]) -> None:
        told, left_out = by_trouble(self.names, norms)
        observer = self.observer
        observer.noted.append(
            (events.PARAMETER_NORMS, time.monotonic(), number, tuple(told), left_out)
        )
        observer.urgent()


def by_trouble(
    names: Sequence[str], norms: dict[int, float], chars: int = 40_000
) -> tuple[list[ParameterNorm], int]:
    """Norms by parameter, the worst first, and how many were left out for want of room.

    What is not finite comes first, then the largest.
    """
    rows = sorted(norms.items(), key=lambda row: -row[1] if math.isfinite(row[1]) else -math.inf)
    told: list[ParameterNorm] = []
    for index, norm in rows[: limits.MAX_PARAMETERS]:
        chars -= len(names[index]) + 16
        if chars < 0:
            break
        finite = math.isfinite(norm)
        told.append(
            ParameterNorm(
                names[index], norm if finite else None, "" if finite else measure.word(norm)
            )
        )
    return told, len(rows) - len(told)


def late_signs(
    names: Sequence[str],
    microbatch: int,
    note: str,
    values: Sequence[tuple[int, float]],
    limit: int,
) -> tuple[Sign, ...]:
    """Signs of gradients that came off a GPU: (index, norm) of those that are not finite."""
    told = values[:limit]
    signs = [
        Sign(Stage.GRADIENT, 0, microbatch, names[index], measure.word(norm), note=note)
        for index, norm in told
    ]
    if len(values) > len(told) and signs:
        last = signs[-1]
        signs[-1] = Sign(
            last.stage, 0, microbatch, last.name, last.value, 0, len(values) - len(told), note
        )
    return tuple(signs)
