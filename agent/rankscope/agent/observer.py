"""The one observer of a process: places the probes, and notes down what they see.

What runs here on the training thread is kept to a few lines a hook (see ``events``); the rest is
worked out by the sending thread.
"""

import functools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from rankscope.agent import events, guards, switch
from rankscope.agent.calls import Calls
from rankscope.agent.events import Event
from rankscope.agent.probes import catalogue
from rankscope.agent.probes.backward import Backward
from rankscope.agent.probes.base import Probe
from rankscope.agent.probes.collectives import Collectives
from rankscope.agent.probes.exceptions import describe
from rankscope.agent.probes.facts import Facts
from rankscope.agent.probes.gradients.probe import Gradients
from rankscope.agent.probes.gradnorm import GradNormProbe
from rankscope.agent.probes.issued import Issued
from rankscope.agent.probes.late import LateReader
from rankscope.agent.probes.loader import Loader
from rankscope.agent.probes.loss import Loss
from rankscope.agent.probes.memory import MemoryProbe
from rankscope.agent.probes.numerics.forward import Forward
from rankscope.agent.probes.numerics.lossvalue import LossValue
from rankscope.agent.probes.numerics.updates import Updates
from rankscope.agent.probes.statebytes import StateBytes
from rankscope.agent.probes.step import Step
from rankscope.agent.signs import Signs

Answer = TypeVar("Answer")


class Observer:
    """The probes of this process, and the notes they take."""

    # What the entries touch lies together, and is found without a look into a large table.
    __slots__ = (
        *("on", "thread", "spent_s", "kernel_s", "noted", "loss", "gradnorm", "step", "cuda"),
        *("number", "microbatch", "backwards", "updated", "going_on", "more", "signs", "updates"),
        "looks",
        *("__dict__", "__weakref__"),
    )

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        """The training thread: hooks that run on another are not of the loop."""
        self.noted: deque[Event] = deque(maxlen=events.MAX_EVENTS)
        self.urgent: Callable[[], None] = _nobody
        """Wakes the sending thread; set by whoever runs it."""
        self.on = True
        self.going_on: Callable[[], None] | None = None
        """Called as the first forward, or the first backward, of a step begins; what it raises goes
        to ``cannot_go_on``."""
        self.facts_changed = False
        self.spent_s = self.kernel_s = 0.0  # bookkeeping and norm kernels since the beginning
        self.reported: int | None = None  # id of the exception that was sent
        self.cuda = False
        """Whether the first model is on a CUDA device: its numbers come late."""
        self.start_step = 0
        """The number of updates that were made before: a resumed run goes on counting."""
        self.number = 1
        """The number of the note of the step in work, from 1: for values that come late."""
        self._models: list[weakref.ref[Any]] = []
        self._optimizers: list[weakref.ref[Any]] = []
        self.late = LateReader()
        self.calls = Calls(functools.partial(guards.entry, self))
        self.backward_begins: list[guards.Part] = []
        """``(now, tensors, args, kwargs)`` of an outermost backward. A probe adds to it when it is
        made, as to the next one; for what is around a model's call see ``calls``."""
        self.update_begins: list[guards.Part] = []
        """``(now, optimizer, args, kwargs)`` before the first optimizer's step."""
        self.backward_ends: list[guards.Part] = []
        """As an outermost backward ends, also one that raised."""
        self.update_ends: list[guards.Part] = []
        """After the first optimizer's step, before that may end the step of a loop."""
        self.signs = Signs(self._note_signs)
        self.microbatch = 0
        """Training forwards of the first model in the step in work."""
        self.backwards = 0
        """Outermost backwards that have ended in the step in work."""
        self.looks = 0
        """Backwards at whose end ``updates`` looks yet."""
        self.updated = False
        """Whether the first optimizer changed parameters in the step in work."""
        self.more: dict[str, Any] = {}
        """Further fields of the record of the step in work, such as ``local_norm``."""

        self.probes: dict[str, Probe] = {kind.name: kind(self) for kind in catalogue.PROBES}
        self.loader = self._probe(Loader)
        self.loss = self._probe(Loss)
        self.gradnorm = self._probe(GradNormProbe)
        self.gradients = self._probe(Gradients)
        self.memory = self._probe(MemoryProbe)
        self.state = self._probe(StateBytes)
        self.collectives = self._probe(Collectives)
        self.issued = self._probe(Issued)
        self.facts = self._probe(Facts)
        self.step = self._probe(Step)
        self.backward = self._probe(Backward)
        self.forward = self._probe(Forward)
        self.updates = self._probe(Updates)
        self.loss_value = self._probe(LossValue)

    def _probe(self, kind: type[Any]) -> Any:
        return self.probes[kind.name]

    # placing the probes

    def install(self) -> None:
        self.on = True
        for probe in self.probes.values():
            self.ask(probe, probe.install)
        for model in _alive(self._models):
            self._watch_model(model)
        for optimizer in _alive(self._optimizers):
            self._watch_optimizer(optimizer)

    def uninstall(self) -> None:
        """Every hook is taken away: training runs as if ``attach`` had never been called."""
        self.on = False
        switch.contained(
            *(functools.partial(self._uninstall, probe) for probe in self.probes.values())
        )

    def _uninstall(self, probe: Probe) -> None:
        try:
            probe.uninstall()
        except Exception as error:
            if switch.is_users(error):
                raise
            self.fault(probe, error)

    def abandon(self) -> None:
        """In a forked child: nothing is observed, and the sending thread's locks are not touched.

        The parent's thread may have held one of them at the fork, and nobody would let go of it.
        """
        self.on = False
        self.urgent = _nobody
        self.uninstall()
        self.noted.clear()

    def watch(self, model: Any, optimizer: Any) -> None:
        """A further model and optimizer (either may be None), unless they are watched already.

        The first model counts the microbatches, the first optimizer marks the steps.
        """
        models, optimizers = _alive(self._models), _alive(self._optimizers)
        if len(models) + len(optimizers) < len(self._models) + len(self._optimizers):
            self._tidy()
        if model is not None and not any(model is one for one in models):
            self._models = [weakref.ref(one) for one in (*models, model)]
            self._watch_model(model)
        if optimizer is not None and not any(optimizer is one for one in optimizers):
            self._optimizers = [weakref.ref(one) for one in (*optimizers, optimizer)]
            self._watch_optimizer(optimizer)

    def _tidy(self) -> None:
        """Some of what was watched is gone. Where models come and go nothing may pile up."""
        self._models = [one for one in self._models if one() is not None]
        self._optimizers = [one for one in self._optimizers if one() is not None]
        for probe in self.probes.values():
            self.ask(probe, probe.tidy)

    def watched(self) -> tuple[list[Any], list[Any]]:
        """The models and the optimizers that are alive."""
        return _alive(self._models), _alive(self._optimizers)

    def _watch_model(self, model: Any) -> None:
        first = self._models[0]() is model
        for probe in self.probes.values():
            self.ask(probe, functools.partial(probe.watch_model, model, first=first))

    def _watch_optimizer(self, optimizer: Any) -> None:
        first = self._optimizers[0]() is optimizer
        for probe in self.probes.values():
            self.ask(probe, functools.partial(probe.watch_optimizer, optimizer, first=first))

    # keeping the probes' faults to ourselves

    def guard(
        self, probe: Probe, body: Callable[..., None], *, anywhere: bool = False
    ) -> Callable[..., None]:
        """``body(now, …)`` as training may call it: it cannot fail, and its time is counted.

        It does nothing on other threads than the training thread, unless ``anywhere``.
        """
        return guards.guard(self, probe, body, anywhere=anywhere)

    def ask(self, probe: Probe, question: Callable[[], Answer]) -> Answer | None:
        """What ``question`` answers; None when the probe is off, or fails in it. Any thread."""
        if not probe.on:
            return None
        try:
            return question()
        except Exception as error:
            if switch.is_users(error):
                raise
            self.fault(probe, error)
            return None

    def fault(self, probe: Probe, error: BaseException) -> None:
        """``probe`` failed: it is off from now on, and the hub is told once. From any thread."""
        if probe.on:
            probe.on = False
            now = time.monotonic()
            self.noted.append((events.FAULT, now, probe.name, switch.one_line(error)))
            self.urgent()

    def cannot_go_on(self, error: Exception) -> None:
        """``going_on`` failed, which others call on the way: they go on without."""
        if switch.is_users(error):
            raise error
        self.going_on = None
        self.fault(self.issued, error)

    # what the probes ask for

    @property
    def device(self) -> torch.device | None:
        device: torch.device | None = self.facts.device
        return device

    def note_step(self, code: int, now: float, given: Any = None, tokens: Any = None) -> None:
        """A step ended at ``now``: gather what is known of it."""
        loss, norm = self.loss, self.gradnorm
        outputs: Any = ()
        backwards: Any = ()
        grad_norm = sharded = None
        # What they found is taken here, and not by calls of theirs: each is more code to fetch.
        if loss.found:
            outputs, backwards = loss.outputs, loss.backwards
            loss.outputs, loss.backwards = [], []
            loss.untrained, loss.found = 0, False
        if norm.found is not None:
            grad_norm, sharded = norm.found
            norm.found = None
        signs = self.signs
        if signs.bad or signs.steps_since >= 0:
            signs.end_step()
        elif signs.seen:
            signs.seen.clear()
        number = self.number
        self.number = number + 1
        if self.cuda:
            late: dict[str, torch.Tensor] = {}
            given, outputs, backwards, grad_norm = self._set_aside(
                late, given, outputs, backwards, grad_norm
            )
            self.read_late()
            self.ask(loss, lambda: self.late.submit(number, late))
        # The fields of a StepNote; made one only where it is read.
        note = number, given, outputs, backwards, grad_norm, sharded, tokens
        more = self.more
        if self.updated:
            self.updated = False
            more["updated"] = True
        elif self.microbatch and self.updates.watched and self.updates.on:
            more.setdefault("updated", False)
        if more:
            self.more = {}
        self.microbatch = self.backwards = 0
        self.noted.append((code, now, (*note, self.spent_s, self.kernel_s, more or None)))

    def _note_signs(self, signs: Any, looked: Any) -> None:
        event = events.SIGNS, time.monotonic(), self.number, signs, looked
        self.noted.append(event)
        self.urgent()

    def _set_aside(
        self, late: dict[str, torch.Tensor], given: Any, outputs: Any, backwards: Any, norm: Any
    ) -> tuple[Any, Any, Any, Any]:
        """Move what is on the device to ``late``; a loss given or found goes by the same order."""
        loss = self.ask(self.loss, lambda: self.loss.on_device(given, outputs, backwards))
        if loss is not None:
            late["loss"] = loss
            given, outputs, backwards = None, (), ()
        if isinstance(norm, torch.Tensor):
            late["grad_norm"], norm = norm, None
        return given, outputs, backwards, norm

    def read_late(self) -> None:
        """Note down what has come off the device meanwhile. On the training thread."""
        for number, values in self.ask(self.loss, self.late.poll) or ():
            self.noted.append((events.LATE, time.monotonic(), number, values))
        self.ask(self.gradients, self.gradients.read_late)

    def raised(self, error: BaseException) -> None:
        """``error`` is ending this rank. Noted once, however often it passes by."""
        if self.on and self.reported != id(error):
            self.reported = id(error)
            self.noted.append((events.RAISED, time.monotonic(), describe(error)))
            self.urgent()


def _nobody() -> None:
    """There is no thread to wake."""


def _alive(references: "list[weakref.ref[Any]]") -> list[Any]:
    return [thing for thing in (reference() for reference in references) if thing is not None]
