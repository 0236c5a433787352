"""Checksums of this rank's parameters after an update, for the hub to compare between replicas.

A small model is gone through whole after each update, a large one in parts that take turns, as
often as the cost allows; which part it is follows from the number of the step alone, so replicas
look at the same. Where that is affordable, the same is summed again before the next update: bits
that have changed in between were changed by no update, and tell which of two replicas is wrong.
"""

import itertools
import sys
import time
import weakref
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
from rankscope.agent.probes.numerics.pace import Pace
from rankscope.agent.tracing import recorded

SHARE = 0.005
"""The share of a step's time that this may take, on average."""

FREE_S = 0.0006
"""A check that takes less is made at every step."""

LEAST_S = 0.02
RANKS_PER_S = 1600
"""Checks come no more often than every ``LEAST_S``, and so seldom that a hub gets no more than
``RANKS_PER_S`` of them a second."""

MAX_BUFFERS = 100


class _Last(NamedTuple):
    """The newest check, until the next update."""

    number: int
    part: int
    sums: Tensor


class Replicas(Probe):
    name: ClassVar[str] = "replicas"
    guarded: ClassVar[tuple[str, ...]] = ("on_update", "on_updated")

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._named = Named()
        self._models: list[weakref.ref[Any]] = []
        self._names: tuple[str, ...] = ()
        self._layout = Layout("", [])
        self._summer = Summer()
        self._later = Later()
        self._pace: Pace | None = None
        self._last: _Last | None = None
        self._altered: Tensor | None = None
        self._cost_s = 0.0
        self._checks = 0
        observer.update_begins.append((self, self.on_update))
        observer.update_ends.append((self, self.on_updated))

    def watch_model(self, model: Any, *, first: bool) -> None:
        self._named.add_model(model)
        self._models.append(weakref.ref(model))

    def watch_optimizer(self, optimizer: Any, *, first: bool) -> None:
        self._named.add_optimizer(optimizer)

    def uninstall(self) -> None:
        self._named = Named()
        self._models.clear()
        self._names = ()
        self._last = self._altered = None

    def on_update(self, now: float, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An update is about to begin: are the bits those that the last one left?"""
        last, self._last = self._last, None
        self._altered = None
        if last is None or last.number != self.observer.number - 1 or recorded():
            return
        tensors = self._part(last.part)
        if tensors is None or len(tensors) != len(last.sums):
            return
        with torch.no_grad():
            self._altered = self._summer.checksums(tensors) != last.sums
        cost_s = time.monotonic() - now
        self.observer.kernel_s += cost_s
        self._cost_s = cost_s

    def on_updated(self, now: float, optimizer: Any, args: Any, kwargs: Any) -> None:
        number = self.observer.number
        pace = self._pace or self._start()
        altered, self._altered = self._altered, None
        if pace is not None and pace.due(number) and not recorded():
            self._check(pace, number, altered, now)
        for check, values in self._later.poll():
            self._arrived(check, values)

    def _start(self) -> Pace | None:
        """The pace, once it is known how many ranks there are; None while there is only one."""
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_available():
            return None
        if not distributed.is_initialized() or (ranks := distributed.get_world_size()) < 2:
            return None
        least_s = max(LEAST_S, ranks / RANKS_PER_S)
        self._pace = Pace(share=SHARE, free_s=FREE_S, least_s=least_s)
        return self._pace

    def _check(self, pace: Pace, number: int, altered: Tensor | None, now: float) -> None:
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
        self.observer.kernel_s += cost_s
        if pace.every == 1 and indices:  # else the cost of looking twice is not in the pace
            self._last = _Last(number, part, sums)
        pace.took(number, now, cost_s + self._cost_s)
        self._cost_s = 0.0

    def _part(self, part: int) -> list[Tensor] | None:
        names, parameters, _ = self._named.read()
        if names is not self._names or part >= len(self._layout.parts):
            return None
        return [finite.local(parameters[index]) for index in self._layout.parts[part]]

    def _arrived(self, check: Check, values: list[int]) -> None:
        count = len(check.names)
        altered: tuple[str, ...] = ()
        if check.compared:
            flags = values[count : 2 * count]
            altered = tuple(name for name, yes in zip(check.names, flags, strict=True) if yes)
            values = values[:count] + values[2 * count :]
        event = (
            events.CHECKSUMS,
            time.monotonic(),
            check,
            values,
            altered if check.compared else None,
        )
        self.observer.noted.append(event)
        if altered:
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
