"""What came in and the first module whose output was not finite.

Noted always, looked at when a loss or a gradient is bad. What is bad in healthy steps, too (a mask
of -inf, a NaN for a missing label), is learned in steps 1, 2, 4, 8, … and accuses nobody.
"""

import functools
import statistics
import threading
import time
import weakref
from typing import Any, ClassVar

import torch
from torch import Tensor

from rankscope.agent.calls import Removal
from rankscope.agent.probes.base import Probe
from rankscope.agent.probes.numerics import batch
from rankscope.agent.probes.numerics.chosen import chosen
from rankscope.agent.probes.numerics.ondevice import OnDevice
from rankscope.agent.probes.numerics.outputs import Outputs, Usual
from rankscope.agent.tracing import recorded
from rankscope.protocol.messages import Stage

FEW = 64
"""Modules that are noted at first. On a step that is long enough for it more are."""

NOTE_S = 4e-6
"""What a note costs, about, with cold caches."""

NOTE_SHARE = 0.001
"""Of a step's time, for all notes."""

ALL = 4096
"""Modules that are noted for a while after a sign, so that the innermost one has its name."""

ARMED_STEPS = 20
MEASURED_STEPS = 8

MAX_LEARNED = 8
"""Backwards of one step of which it is learned what is usual."""


class Forward(Probe):
    """Of every watched model, in training. Under ``no_grad`` and in a backward nothing is noted."""

    name: ClassVar[str] = "forward"
    guarded: ClassVar[tuple[str, ...]] = (
        "on_backward_begin",
        "on_backward_end",
        "on_updated",
    )
    numbers: ClassVar[bool] = True

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self.models: list[Noted] = []
        self.device = OnDevice(observer)
        self._limit = FEW
        self._armed = False
        self._steps_s: list[float] = []
        self._last_s: float | None = None
        observer.backward_begins.append((self, self.on_backward_begin))
        observer.backward_ends.append((self, self.on_backward_end))
        observer.update_ends.append((self, self.on_updated))
        observer.signs.also.append(functools.partial(observer.ask, self, self.look))

    def watch_model(self, model: Any, *, first: bool) -> None:
        self.models.append(Noted(self, model, self._limit))

    def tidy(self) -> None:
        for model in self.models:
            if model.gone:
                model.remove()
        self.models = [model for model in self.models if not model.gone]

    def uninstall(self) -> None:
        for model in self.models:
            model.remove()
        self.models.clear()
        self.device.rest()

    def on_backward_begin(self, now: float, tensors: Any, args: Any, kwargs: Any) -> None:
        """Before the backward frees what was kept: in a few steps it is learned what is usual."""
        observer = self.observer
        number = observer.number
        if number & (number - 1) or threading.get_ident() != observer.thread or recorded():
            return
        began_s = time.monotonic()
        for model in self.models:
            if model.outputs.any:
                model.learn()
        observer.kernel_s += time.monotonic() - began_s

    def on_backward_end(self, now: float, tensors: Any, args: Any, kwargs: Any) -> None:
        for model in self.models:
            model.outputs.clear()

    def look(self) -> None:
        """Something is bad in the step in work: say which module was the first."""
        signs = self.observer.signs
        if threading.get_ident() != self.observer.thread:
            return
        for model in self.models:
            if not model.outputs.any:
                continue
            signs.looked(Stage.FORWARD)
            given, whole = model.outputs.given()
            if whole:
                signs.looked(Stage.INPUT)
            for place, microbatch, (value, count) in given:
                signs.add(Stage.INPUT, place, microbatch=microbatch, value=value, count=count)
            origin = model.outputs.origin()
            model.outputs.clear()
            if origin is not None and not signs.has(Stage.INPUT, origin.microbatch):
                value, count = origin.trouble
                signs.add(
                    Stage.FORWARD,
                    origin.module,
                    microbatch=origin.microbatch,
                    value=value,
                    count=count,
                    note=origin.note,
                )

    def on_updated(self, now: float, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Note more modules, or fewer, from the next step on."""
        if self.observer.cuda:
            self.device.end(now)
        signs = self.observer.signs
        for model in self.models:
            model.learned(healthy=not signs.bad)
        armed = signs.bad or 0 <= signs.steps_since < ARMED_STEPS
        if armed != self._armed:
            self._armed = armed
            self._notice(ALL if armed else self._limit)
        if len(self._steps_s) < MEASURED_STEPS:
            if self._last_s is not None:
                self._steps_s.append(now - self._last_s)
            self._last_s = now
            if len(self._steps_s) == MEASURED_STEPS:
                self._measured(statistics.median(self._steps_s))

    def _measured(self, step_s: float) -> None:
        microbatches = max(1, self.observer.microbatch)
        self._limit = max(FEW, min(ALL, int(NOTE_SHARE * step_s / NOTE_S / microbatches)))
        if not self._armed and self._limit > FEW:
            self._notice(self._limit)

    def _notice(self, limit: int) -> None:
        for model in self.models:
            model.notice(limit)


class Noted:
    """The notes on the modules of one model, which is not kept alive by them."""

    def __init__(self, probe: Forward, model: Any, limit: int) -> None:
        self.probe = probe
        self._usual = Usual(set(), set())
        self._seen: list[Usual] = []  # in the step in work
        self.outputs = Outputs([""], self._spend, self._usual)
        self._removals: list[Removal] = []
        self._ids: list[int] | None = None
        self._model = weakref.ref(model)
        calls = probe.observer.calls
        self._remove = calls.add(model, begins=(probe, self.on_begin), ends=(probe, self.on_end))
        self.notice(limit)

    @property
    def gone(self) -> bool:
        """Whether the model is."""
        return self._model() is None

    def notice(self, limit: int) -> None:
        """Note up to ``limit`` modules from now on."""
        model = self._model()
        if model is None:
            return
        found = chosen(model, limit)
        ids = [id(module) for _, module in found]
        if ids == self._ids:
            return  # what is known of their outputs stays known
        self._forget()
        self._ids = ids
        self.outputs = Outputs([*(name for name, _ in found), ""], self._spend, self._usual)
        self.outputs.on_device = self._on_device
        self._own = self.outputs.noting(len(found))
        for index, (_, module) in enumerate(found):
            note = self.outputs.noting(index)
            self._removals.append(self.probe.observer.calls.note(module, note))

    def learn(self) -> None:
        """Of the forwards whose backward begins."""
        if len(self._seen) < MAX_LEARNED:
            self._seen.append(self.outputs.learn())

    def learned(self, *, healthy: bool) -> None:
        """The step is over: what was seen in it is usual, if it was ``healthy``."""
        if self._seen:
            for seen in self._seen if healthy else ():
                self._usual.inputs.update(seen.inputs)
                self._usual.outputs.update(seen.outputs)
            self._seen.clear()

    def _spend(self, cost_s: float) -> None:
        self.probe.observer.kernel_s += cost_s

    def remove(self) -> None:
        self._forget()
        self._remove()
        self.outputs.active = False
        self.outputs.clear()

    def _forget(self) -> None:
        for remove in self._removals:
            remove()
        self._removals.clear()

    def on_begin(self, now: float, model: Any, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled() and not recorded():
            given = batch.tensors(args, kwargs)
            microbatch = self.probe.observer.microbatch
            self.outputs.begin(microbatch, given)
            if self.probe.observer.cuda:
                self._begin_on_device(microbatch, given)

    def _begin_on_device(self, microbatch: int, given: list[tuple[str, Tensor]]) -> None:
        device = self.probe.device
        device.begin()
        for place, tensor in given:
            if tensor.is_cuda and device.looking:
                device.note(Stage.INPUT, place, microbatch, tensor)

    def _on_device(self, module: int, output: Tensor) -> None:
        device = self.probe.device
        if device.looking:
            name = self.outputs.names[module]
            device.note(Stage.FORWARD, name, self.probe.observer.microbatch, output)

    def on_end(self, now: float, model: Any, args: Any, output: Any) -> None:
        """The model's own output comes last: bad alone, it is so by the model's own code."""
        if self.outputs.active:
            self._own(args, output)
            self.outputs.end()
