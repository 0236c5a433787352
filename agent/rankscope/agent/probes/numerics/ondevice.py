"""The same looks at tensors on a CUDA device, whose numbers come later: nothing waits for it.

Of each tensor its largest magnitude is taken on the device, which is not finite when an element is
not. A step's magnitudes come off the device together, and are gone through once they are there, in
the order in which they were computed.

An input or a module's output that is bad while the losses of its step are finite has spoilt
nothing that is seen here, and is not told: it may be a mask of -inf, or a NaN for a missing label.
What is so in several steps is usual, and accuses nobody when a loss is bad, either.
"""

import time
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from rankscope.agent import events
from rankscope.agent.probes.numerics.later import Later
from rankscope.agent.probes.pace import Pace
from rankscope.protocol.messages import Sign, Stage

SHARE = 0.005
"""Of a step's time, for the launches on the training thread."""

FREE_S = 0.0002

MAX_NAMES = 8

USUAL_STEPS = 2
"""Bad in so many steps with finite losses, it is usual."""

MAX_USUAL = 1024
"""Of those that are remembered."""

HARMLESS = frozenset({Stage.INPUT, Stage.FORWARD})
"""Stages at which something bad need not spoil anything."""


class Look(NamedTuple):
    stage: Stage
    name: str
    microbatch: int


class OnDevice:
    """Of the training thread."""

    def __init__(self, observer: Any) -> None:
        self._observer = observer
        self._later = Later()
        self._looks: list[Look] = []
        self._vectors: list[Tensor] = []
        self._pace = Pace(share=SHARE, free_s=FREE_S)
        self._cost_s = 0.0
        self._harmless: dict[tuple[Stage, str, str], int] = {}
        """In how many steps (stage, name, value) was bad and the losses were finite."""
        self.looking = False
        """Whether modules' outputs are looked at in this step."""

    def rest(self) -> None:
        """Nothing is looked at for a while."""
        self._pace.rest()

    def begin(self) -> None:
        """A forward begins."""
        self.looking = self._pace.due(self._observer.number) and not capturing()

    def note(self, stage: Stage, name: str, microbatch: int, tensor: Tensor) -> None:
        """Look at ``tensor``, of a device; at a loss, also where modules are not looked at."""
        if not tensor.numel() or not (tensor.is_floating_point() or tensor.is_complex()):
            return
        began_s = time.monotonic()
        with torch.no_grad():
            given = tensor.detach()
            size = given if given.numel() == 1 else magnitude(given)
            self.vector([Look(stage, name, microbatch)], size.reshape(1))
        self._cost_s += time.monotonic() - began_s

    def vector(self, looks: list[Look], sizes: Tensor) -> None:
        """``sizes`` that were computed already, one for each of ``looks``."""
        self._looks += looks
        real = torch.view_as_real(sizes).abs().amax(-1) if sizes.is_complex() else sizes
        self._vectors.append(real.to(torch.float32))

    def end(self, now: float) -> None:
        """The step has been updated: send for what was noted in it, and say what has come."""
        if self._vectors:
            looks, vectors = self._looks, self._vectors
            self._looks, self._vectors = [], []
            with torch.no_grad():
                self._later.submit((self._observer.number, looks), torch.cat(vectors))
        if self.looking:
            self._pace.took(self._observer.number, now, self._cost_s)
        self._cost_s = 0.0
        for (number, looks), values in self._later.poll():
            self._arrived(number, looks, values)

    def _arrived(self, number: int, looks: list[Look], values: list[float]) -> None:
        bad = [
            (look, value) for look, value in zip(looks, values, strict=True) if value - value != 0
        ]
        if not bad:
            return
        bad = self._harmful(bad)
        if not bad:
            return
        signs = found(bad)
        looked = tuple(sorted({look.stage for look in looks}))
        self._observer.noted.append((events.SIGNS, time.monotonic(), number, signs, looked))
        self._observer.urgent()

    def _harmful(self, bad: list[tuple[Look, float]]) -> list[tuple[Look, float]]:
        """Without what has spoilt nothing."""
        keys = {(look.stage, look.name, word(value)) for look, value in bad}
        if any(look.stage is Stage.LOSS for look, _ in bad):
            usual = {key for key in keys if self._harmless.get(key, 0) >= USUAL_STEPS}
            return [one for one in bad if (one[0].stage, one[0].name, word(one[1])) not in usual]
        for key in keys:
            if key[0] in HARMLESS and (key in self._harmless or len(self._harmless) < MAX_USUAL):
                self._harmless[key] = self._harmless.get(key, 0) + 1
        return [one for one in bad if one[0].stage not in HARMLESS]


def word(value: float) -> str:
    """A magnitude that is not finite, as a sign has it."""
    return "nan" if value != value else "inf"


def found(bad: list[tuple[Look, float]]) -> tuple[Sign, ...]:
    """Signs of what was bad, in order: of the modules of a microbatch the first alone, and none
    where the input was bad.
    """
    told: dict[tuple[Stage, int], list[Sign]] = {}
    for look, value in bad:
        key = look.stage, look.microbatch
        if look.stage is Stage.FORWARD and (key in told or (Stage.INPUT, look.microbatch) in told):
            continue
        sign = Sign(look.stage, 0, look.microbatch, look.name, word(value))
        told.setdefault(key, []).append(sign)
    signs: list[Sign] = []
    for some in told.values():
        signs += some[:MAX_NAMES]
        if len(some) > MAX_NAMES:
            others = len(some) - MAX_NAMES
            signs[-1] = msgspec.structs.replace(signs[-1], others=others)
    return tuple(signs)


def magnitude(tensor: Tensor) -> Tensor:
    """The largest magnitude of ``tensor``, a scalar on its device; NaN when there is one."""
    found: Tensor = torch.linalg.vector_norm(tensor, float("inf"))
    return found


def capturing() -> bool:
    """Whether a CUDA graph is being captured, in which nothing of ours may be recorded."""
    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())
