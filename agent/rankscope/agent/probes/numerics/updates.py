"""Whether a step ended with an update, also in a loop whose guard leaves some updates out."""

import weakref
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, ClassVar

import torch

from rankscope.agent import events
from rankscope.agent.probes.base import Probe

SURE_AFTER = 4
"""Steps with an update have to come before the first without one that is believed."""

RECENT = 8
MAX_TURNS = 2
"""Of the last ``RECENT`` ends of a step, updates that were followed by none: with more of them it
is two models that train in turn."""


class Updates(Probe):
    """Of the first optimizer.

    A loop that calls ``end_step`` says itself where a step ends. In one that does not, an update
    that was left out shows at the next forward: gradients were computed and are gone, all of them.
    Two models that train in turn look like that at every turn, so that is not believed. Nor is it
    before as many backwards as an update takes, where no gradient was ever there between two of
    them: FSDP2 keeps them elsewhere until the last microbatch.

    Nothing is asked of a gradient at an update itself, where a look costs most and says least.
    """

    name: ClassVar[str] = "updates"
    guarded: ClassVar[tuple[str, ...]] = ("on_updated",)

    __slots__ = (
        *("_graded", "_kept", "_optimizer", "_recent", "_seen", "_takes", "_updates", "watched"),
    )

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self.watched = False
        """Whether there is an optimizer, whose updates are seen."""
        self._optimizer: Any = None  # weak, as is the next one
        self._graded: Any = None  # a parameter that had a gradient when one was looked for
        self._updates = self._seen = 0  # in all, and up to the last end without one
        self._recent: deque[bool] = deque(maxlen=RECENT)
        self._takes: deque[int] = deque(maxlen=RECENT)  # backwards of the last updates
        self._kept = False  # a gradient was there between two microbatches
        observer.update_ends.append((self, self.on_updated))

    def watch_optimizer(self, optimizer: Any, *, first: bool) -> None:
        self.watched = True
        if first:
            self._optimizer = weakref.ref(optimizer)

    def uninstall(self) -> None:
        self._optimizer = self._graded = None
        self.observer.backwards = 0  # what comes meanwhile is not seen

    def on_further_forward(self, now: float) -> None:
        """A training forward of the first model begins, and is not the step's first."""
        if not self._updates or not self.observer.backwards or self.observer.step.called:
            return
        graded = None if self._graded is None else self._graded()
        if graded is None or graded.grad is None:
            optimizer = None if self._optimizer is None else self._optimizer()
            if optimizer is None:
                return
            graded = with_gradient(optimizer)
            if graded is not None:
                self._graded, self._kept = weakref.ref(graded), True
                return
            self._graded = None
            if self._kept or self.observer.backwards >= max(self._takes):
                self._missed(now)

    def _missed(self, now: float) -> None:
        """Gradients were computed since the last update, and are gone without another."""
        observer = self.observer
        observer.backwards = 0
        self._recent.extend([True] * min(RECENT, self._updates - self._seen))
        self._seen = self._updates
        self._recent.append(False)
        if self._updates >= SURE_AFTER and turns(self._recent) <= MAX_TURNS:
            observer.note_step(events.STEPPED, now)

    def on_updated(self, now: float, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._updates += 1
        self._takes.append(self.observer.backwards)
        if "found_inf" in optimizer.__dict__:
            self.observer.more["updated"] = took_effect(optimizer)
        else:
            self.observer.updated = True


def turns(recent: Iterable[bool]) -> int:
    """How often an update was followed by a step's end without one."""
    return sum(first and not second for first, second in pairwise(recent))


def took_effect(optimizer: Any) -> bool | None:
    """Whether the step that just ended changed parameters; None where only the device knows.

    A fused optimizer is called by the gradient scaler in any case and told what was found.
    """
    found = optimizer.__dict__.get("found_inf")
    if not isinstance(found, torch.Tensor):
        return True
    return not float(found) if found.is_cpu else None


def with_gradient(optimizer: Any) -> Any:
    """The first parameter of ``optimizer`` that has a gradient; None when none has."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                return parameter
    return None
