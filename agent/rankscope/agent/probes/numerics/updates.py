"""Whether a step ended with an update, also in a loop whose guard leaves some updates out."""

import inspect
import sys
import types
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
FEW = 8
"""Gradients of at most one parameter in so many are left where all were cleared but those that a
loop forgets."""

WHOLE = 3
"""Updates in a row that took more backwards than one: they are no longer taken for several."""

LOOKS = 8
"""Backwards at whose end it is asked whether there are gradients, once there is a reason."""

FIRST_LOOKS = 32
"""The same of a run that begins, at most: until there were some."""

MAX_TURNS = 2
"""Of the last ``RECENT`` ends of a step, updates that were followed by none: with more of them it
is two models that train in turn."""


class Updates(Probe):
    """Of the first optimizer.

    A loop that calls ``end_step`` says itself where a step ends. In one that does not, an update
    that was left out shows at the next forward: gradients were there as the backward ended, and are
    gone, all of them. Where they were not there then, nobody has cleared them: FSDP2 keeps them
    elsewhere until the last microbatch, and loops with a gradient of their own (``main_grad``) take
    each out of ``.grad`` in a hook. That is asked as a run begins, and from the first time on that
    gradients are gone: not at every backward, for a look costs much where caches are cold.

    Two models that train in turn look at the other one's turn as if an update were left out. So
    that is not believed where another optimizer that is watched made one, where the gradients that
    were used were still there as the next backward began, nor where it is so at every turn. Nor is
    it within an update, which may ask for gradients several times (L-BFGS), nor before as many
    backwards as an update takes where no gradient was ever there between two of them: a loop may
    take gradients out of ``.grad`` itself.
    """

    name: ClassVar[str] = "updates"
    guarded: ClassVar[tuple[str, ...]] = ("on_updated",)

    __slots__ = (
        *("_kept", "_optimizer", "_mixed", "_recent", "_seen", "_shown", "_stale", "_takes"),
        *("_there", "_undone", "_updates", "_whole", "_witnesses", "others", "watched"),
    )

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self.watched = False
        """Whether there is an optimizer, whose updates are seen."""
        self.others = False
        """Whether another optimizer made an update with what was computed since the first one's."""
        self._optimizer: Any = None  # weak, as is the next one
        # The first and the last parameter that had a gradient when they were all asked, by where
        # the optimizer has them: a weak reference to one would forbid the user's ``Module.to``.
        self._witnesses: tuple[tuple[int, int], ...] = ()
        self._there: tuple[tuple[int, int], ...] | None = None  # had one as the backward ended
        self._shown = False  # some ever had
        self._stale: bool | None = None  # had one as the first backward since an update began
        self._mixed = False  # that ever was so
        self._updates = self._seen = 0  # in all, and up to the last end without one
        self._recent: deque[bool] = deque(maxlen=RECENT)
        self._takes: deque[int] = deque(maxlen=RECENT)  # backwards of the last updates
        self._whole: deque[int] = deque(maxlen=WHOLE)  # with those taken for steps without one
        self._undone = 0  # backwards taken for such steps since the last update
        self._kept = False  # a gradient was there between two microbatches
        observer.update_ends.append((self, self.on_updated))

    def watch_optimizer(self, optimizer: Any, *, first: bool) -> None:
        self.watched = True
        if first and (self._optimizer is None or self._optimizer() is not optimizer):
            self._optimizer = weakref.ref(optimizer)
            self._witnesses, self._shown, self._mixed = (), False, False
            self.observer.looks = FIRST_LOOKS

    def uninstall(self) -> None:
        self._there = self._stale = None
        self.observer.backwards = 0  # what comes meanwhile is not seen

    def on_first_backward(self) -> None:
        """The first backward since an update begins, and is looked at."""
        optimizer = None if self._optimizer is None else self._optimizer()
        if optimizer is not None and self._witnesses and self._updates:
            self._stale = all(has_gradient(optimizer, at) for at in self._witnesses)
            self._mixed = self._mixed or self._stale

    def on_backward_end(self) -> None:
        """An outermost backward has ended, and is looked at: which witnesses have a gradient?"""
        observer = self.observer
        observer.looks -= 1
        optimizer = None if self._optimizer is None else self._optimizer()
        if optimizer is None or observer.step.called:
            observer.looks = 0
            return
        there = tuple(at for at in self._witnesses if has_gradient(optimizer, at))
        if not there:
            graded, _ = with_gradient(optimizer)
            if graded:
                self._witnesses = there = (graded[0], graded[-1])
        self._there = there
        if there and not self._shown:
            self._shown = True
            observer.looks = min(observer.looks, LOOKS)

    def on_further_forward(self, now: float) -> None:
        """A training forward of the first model begins, and is not the step's first."""
        observer = self.observer
        if not self._updates or not observer.backwards or observer.step.called:
            return
        optimizer = None if self._optimizer is None else self._optimizer()
        if optimizer is None:
            return
        there, self._there = self._there, None
        if self._witnesses and all(has_gradient(optimizer, at) for at in self._witnesses):
            self._kept = True
            return
        graded, trained = with_gradient(optimizer)
        if len(graded) * FEW > trained:
            self._witnesses = (graded[0], graded[-1])
            self._kept = True
            return
        takes = max(max(self._takes), min(self._whole))
        if (self._kept and not graded) or observer.backwards >= takes:
            observer.looks = LOOKS
            of_another = self.others or (self._mixed if self._stale is None else self._stale)
            if self._cleared(optimizer, there) and not of_another and not within(optimizer):
                self._missed(now)
            elif of_another:
                observer.backwards = 0
                self.others, self._stale = False, None

    def _cleared(self, optimizer: Any, there: tuple[tuple[int, int], ...] | None) -> bool:
        """Whether gradients were ``there`` as the backward ended, and are not now. Where nobody
        looked then: whether there ever were any, and none wait elsewhere."""
        if there is None:
            gradients = self.observer.gradients
            return self._shown and not self.observer.ask(gradients, gradients.holds)
        return bool(there) and not all(has_gradient(optimizer, at) for at in there)

    def _missed(self, now: float) -> None:
        """Gradients were computed since the last update, and are gone without another."""
        observer = self.observer
        self._undone += observer.backwards
        self._stale = None
        observer.backwards = 0
        self._recent.extend([True] * min(RECENT, self._updates - self._seen))
        self._seen = self._updates
        self._recent.append(False)
        if self._updates >= SURE_AFTER and turns(self._recent) <= MAX_TURNS:
            observer.note_step(events.STEPPED, now)

    def on_updated(self, now: float, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._updates += 1
        self._there = self._stale = None
        self.others = False
        backwards = self.observer.backwards
        self._takes.append(backwards)
        self._whole.append(self._undone + backwards)
        self._undone = 0
        if "found_inf" in optimizer.__dict__:
            self.observer.more["updated"] = took_effect(optimizer)
        else:
            self.observer.updated = True


def within(optimizer: Any) -> bool:
    """Whether this thread is in the ``step`` of ``optimizer``. Locals of frames are not touched:
    that would keep alive what is in them."""
    code = getattr(inspect.unwrap(type(optimizer).step), "__code__", None)
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False


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


def with_gradient(optimizer: Any) -> tuple[list[tuple[int, int]], int]:
    """Where those parameters of ``optimizer`` are that have a gradient (its group, its index in
    it), and how many it trains.

    Those are what it has a state of, where it keeps states: others may never have had a gradient.
    """
    graded = []
    count = stated = 0
    state = optimizer.state
    for at, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            count += 1
            stated += parameter in state
            if parameter.grad is not None:
                graded.append((at, index))
    return graded, stated or count


def has_gradient(optimizer: Any, at: tuple[int, int]) -> bool:
    """Whether the parameter there has one now."""
    try:
        return optimizer.param_groups[at[0]]["params"][at[1]].grad is not None
    except IndexError:
        return False
