"""Checksums of this rank's parameters after an update, for the hub to compare between replicas.

A small model is gone through whole after each update, a large one in parts that take turns, as
often as the cost allows; which part it is follows from the number of the step alone, so replicas
look at the same. What was written to between two updates was so by no update, and tells which of
two replicas is wrong: torch counts what is written to a tensor, and where a check is made at every
step its bits are summed again before the next update, which also shows what memory did by itself.
"""

import itertools
import sys
import time
import weakref
from collections import deque
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from rankscope.agent import events
from rankscope.agent.checks import NAMED_EVERY, Check
from rankscope.agent.probes.base import Probe
from rankscope.agent.probes.gradients.names import clean, is_wrapper
from rankscope.agent.probes.numerics import finite
from rankscope.agent.probes.numerics.checksum import Summer
from rankscope.agent.probes.numerics.later import Later
from rankscope.agent.probes.numerics.layout import Layout, label, layout
from rankscope.agent.probes.numerics.named import Named
from rankscope.agent.probes.pace import Pace
from rankscope.agent.tracing import recorded

SHARE = 0.001
"""The share of a step's time that this may take, on average."""

FREE_S = 0.0002
"""A check that takes less is made at every step."""

LEAST_S = 0.02
RANKS_PER_S = 1600
"""Checks come no more often than every ``LEAST_S``, and so seldom that a hub gets no more than
``RANKS_PER_S`` of them a second."""

MAX_BUFFERS = 100

ASK_OFTEN = 16
"""Updates at which it is asked how many ranks there are; from then on at every so many."""

MAX_COUNTED = 512
"""Of a model with more parameters it is not asked at every step what was written to."""

HABIT = 3
"""Of the last eight updates, so many before which parameters had been written to: then the loop
does so all the time, and it is no reason for a check out of turn, nor for a word out of turn."""


class _Last(NamedTuple):
    """The newest check, until the next update."""

    number: int
    part: int
    sums: Tensor


class Replicas(Probe):
    name: ClassVar[str] = "replicas"
    guarded: ClassVar[tuple[str, ...]] = ("on_update", "on_updated")
    numbers: ClassVar[bool] = True

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._named = Named()
        self._models: list[weakref.ref[Any]] = []
        self._names: tuple[str, ...] = ()
        self._layout = Layout("", [])
        self._summer = Summer()
        self._later = Later()
        self._pace: Pace | None = None
        self.cost_s = 0.0
        """On the training thread, so far."""
        self._twice = Pace(share=SHARE, free_s=FREE_S)  # of summing before updates as well
        self._last: _Last | None = None
        self._altered: Tensor | None = None
        self._asked = 0
        self._versions: list[int] = []
        self._written: list[str] | None = None
        self._habit: deque[bool] = deque(maxlen=8)
        observer.update_begins.append((self, self.on_update))
        observer.update_ends.append((self, self.on_updated))

    def watch_model(self, model: Any, *, first: bool) -> None:
        self._named.add_model(model)
        self._models.append(weakref.ref(model))

    def watch_optimizer(self, optimizer: Any, *, first: bool) -> None:
        self._named.add_optimizer(optimizer)

    def tidy(self) -> None:
        self._named.tidy()
        self._models = [one for one in self._models if one() is not None]

    def uninstall(self) -> None:
        self._named = Named()
        self._models.clear()
        self._names = ()
        self._last = self._altered = None
        for pace in (self._pace, self._twice):
            if pace is not None:
                pace.rest()

    def on_update(self, now: float, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An update is about to begin: are the bits those that the last one left?"""
        last, self._last = self._last, None
        self._altered = self._written = None
        if self._pace is None or not 0 < len(self._versions) <= MAX_COUNTED:
            return
        began_s = time.monotonic()
        self._compare(last)
        self.cost_s += time.monotonic() - began_s

    def _compare(self, last: _Last | None) -> None:
        names, parameters, _ = self._named.read()
        versions = [version(one) for one in parameters]
        if names is self._names and len(versions) == len(self._versions):
            changed = zip(names, versions, self._versions, strict=True)
            self._written = [name for name, one, other in changed if one != other]
            self._habit.append(bool(self._written))
        if last is None or last.number != self.observer.number - 1 or recorded():
            return
        tensors = self._part(last.part)
        if tensors is None or len(tensors) != len(last.sums):
            return
        with torch.no_grad():
            self._altered = self._summer.checksums(tensors) != last.sums

    def on_updated(self, now: float, optimizer: Any, args: Any, kwargs: Any) -> None:
        pace = self._pace or self._start()
        if pace is None:
            return
        began_s = time.monotonic()  # other probes' work lies between ``now`` and here
        number = self.observer.number
        altered, self._altered = self._altered, None
        written, self._written = self._written, None
        forced = bool(written) and sum(self._habit) < HABIT
        if (forced or pace.due(number)) and not recorded():
            self._check(pace, number, altered, written, began_s)
        if self._layout.parts:
            self._versions = [version(one) for one in self._named.read().tensors]
        for check, values in self._later.poll():
            self._arrived(check, values)
        self.cost_s += time.monotonic() - began_s

    @property
    def every(self) -> int:
        """At which steps a check is made: those that this divides."""
        return self._pace.every if self._pace is not None else 0

    @property
    def parts(self) -> int:
        """How many parts there are, which take turns."""
        return len(self._layout.parts)

    def _start(self) -> Pace | None:
        """The pace, once it is known how many ranks there are; None while there is only one."""
        self._asked += 1
        if self._asked > ASK_OFTEN and self._asked % ASK_OFTEN:
            return None
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_available():
            return None
        if not distributed.is_initialized() or (ranks := distributed.get_world_size()) < 2:
            return None
        least_s = max(LEAST_S, ranks / RANKS_PER_S)
        self._pace = Pace(share=SHARE, free_s=FREE_S, least_s=least_s)
        return self._pace

    def _check(
        self,
        pace: Pace,
        number: int,
        altered: Tensor | None,
        written: list[str] | None,
        now: float,
    ) -> None:
        names, parameters, _ = self._named.read()
        if names is not self._names:
            self._names = names
            held = [finite.local(one) for one in parameters]
            sizes = [tensor.nbytes for tensor in held]
            trainer = self.observer.facts.trainer
            self._layout = layout(parameters, sizes, trainer, self._group())
        count = len(self._layout.parts)
        if not count:
            return
        part = number % count
        if written and altered is None:  # that part, also out of turn
            part = next(
                (
                    at
                    for at, indices in enumerate(self._layout.parts)
                    if any(names[index] in written for index in indices)
                ),
                part,
            )
        indices = self._layout.parts[part]
        tensors = [finite.local(parameters[index]) for index in indices]
        sums = self._summer.checksums(tensors)
        buffers = self._buffers() if part == 0 and number // pace.every % NAMED_EVERY == 0 else []
        check = Check(
            number=number,
            first=indices[0] if indices else 0,
            names=tuple(names[index] for index in indices),
            buffers=tuple(name for name, _ in buffers),
            compared=altered is not None,
            written=None if written is None else tuple(written),
            replicas=self._layout.replicas,
            every=pace.every,
        )
        vectors = [sums]
        if altered is not None:
            vectors.append(altered.to(torch.int64))
        if check.buffers:
            vectors.append(self._summer.checksums([finite.local(one) for _, one in buffers]))
        if indices:
            self._later.submit(check, vectors[0] if len(vectors) == 1 else torch.cat(vectors))
        cost_s = time.monotonic() - now
        pace.took(number, now, cost_s)
        self._twice.took(number, now, 2 * cost_s)
        if pace.every == self._twice.every == 1 and indices:
            self._last = _Last(number, part, sums)

    def _part(self, part: int) -> list[Tensor] | None:
        names, parameters, _ = self._named.read()
        if names is not self._names or part >= len(self._layout.parts):
            return None
        return [finite.local(parameters[index]) for index in self._layout.parts[part]]

    def _arrived(self, check: Check, values: list[int]) -> None:
        count = len(check.names)
        altered = check.written
        if check.compared:
            flags = values[count : 2 * count]
            altered = tuple(name for name, yes in zip(check.names, flags, strict=True) if yes)
            values = values[:count] + values[2 * count :]
        event = (
            events.CHECKSUMS,
            time.monotonic(),
            check,
            values,
            altered,
        )
        self.observer.noted.append(event)
        if altered and sum(self._habit) < HABIT:
            self.observer.urgent()

    def _buffers(self) -> list[tuple[str, Any]]:
        """The first model's, which replicas need not have alike."""
        model = self._models[0]() if self._models else None
        if model is None:
            return []
        wrapped = is_wrapper(model)
        named = itertools.islice(model.named_buffers(), MAX_BUFFERS)
        return [(clean(name, wrapped=wrapped), one) for name, one in named]

    def _group(self) -> str:
        """The ranks that DDP keeps alike; empty for one rank alone."""
        import torch.distributed as distributed

        for model in (held() for held in self._models):
            group = getattr(model, "process_group", None)
            if group is not None:
                ranks = distributed.get_process_group_ranks(group)
                if len(ranks) < 2:
                    return ""
                return "world" if len(ranks) == distributed.get_world_size() else label(ranks)
        return "world"


def version(parameter: Any) -> int:
    """Counts what is written to the tensor in place, through whatever shares its memory."""
    tensor = getattr(parameter, "_local_tensor", parameter)
    found: int = tensor._version
    return found
