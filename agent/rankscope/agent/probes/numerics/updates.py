"""Whether a step ended with an update, also in a loop whose guard leaves some updates out."""

import weakref
from collections import deque
from collections.abc import Callable, Iterable
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
    that was left out shows at the next forward: gradients were computed and are gone. Two models
    that train in turn look like that at every turn, so that is not believed.
    """

    name: ClassVar[str] = "updates"
    guarded: ClassVar[tuple[str, ...]] = ("on_forward", "on_backward_end", "on_updated")

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._removals: list[Callable[[], None]] = []
        self._optimizer: Any = None
        self._graded: Any = None  # a parameter that had a gradient after the last backward
        self._updates = 0
        self._recent: deque[bool] = deque(maxlen=RECENT)
        observer.backward_ends.append((self, self.on_backward_end))
        observer.update_ends.append((self, self.on_updated))

    def watch_model(self, model: Any, *, first: bool) -> None:
        if first:
            self._removals.append(self.observer.calls.add(model, begins=(self, self.on_forward)))

    def watch_optimizer(self, optimizer: Any, *, first: bool) -> None:
        if first:
            self._optimizer = weakref.ref(optimizer)

    def uninstall(self) -> None:
        for remove in self._removals:
            remove()
        self._removals.clear()
        self._graded = self._optimizer = None

    def on_forward(self, now: float, model: Any, args: Any, kwargs: Any) -> None:
        if self._optimizer is None or not torch.is_grad_enabled():
            return
        observer = self.observer
        graded = None if self._graded is None else self._graded()
        if graded is not None and graded.grad is None and not observer.step.called:
            self._graded = None
            self._recent.append(False)
            if self._updates >= SURE_AFTER and turns(self._recent) <= MAX_TURNS:
                observer.note_step(events.STEPPED, now)
        observer.more.setdefault("updated", False)

    def on_backward_end(self, now: float, tensors: Any, args: Any, kwargs: Any) -> None:
        optimizer = None if self._optimizer is None else self._optimizer()
        if optimizer is not None and self._graded is None:
            graded = with_gradient(optimizer)
            self._graded = None if graded is None else weakref.ref(graded)

    def on_updated(self, now: float, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._graded = None
        self._updates += 1
        self._recent.append(True)
        self.observer.more["updated"] = took_effect(optimizer)


def turns(recent: Iterable[bool]) -> int:
    """How often an update was followed by a step's end without one."""
    return sum(first and not second for first, second in pairwise(recent))


def took_effect(optimizer: Any) -> bool | None:
    """Whether the step that just ended changed parameters; None where only the device knows.

    A fused optimizer is called by the gradient scaler in any case and told what was found.
    """
    found = getattr(optimizer, "found_inf", None)
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
