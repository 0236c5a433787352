"""The one observer of a process: what its probes see becomes steps, and steps go to the outbox.

Everything here runs on the training thread, except where it says otherwise.
"""

import functools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from rankscope.agent import switch
from rankscope.agent.clock.phases import Phases, StepTimes
from rankscope.agent.outbox import Outbox
from rankscope.agent.probes import catalogue
from rankscope.agent.probes.base import Probe
from rankscope.agent.probes.collectives import Collectives
from rankscope.agent.probes.exceptions import describe
from rankscope.agent.probes.facts import Facts
from rankscope.agent.probes.gradnorm import GradNormProbe
from rankscope.agent.probes.late import LateReader
from rankscope.agent.probes.loader import Loader
from rankscope.agent.probes.loss import Loss
from rankscope.agent.probes.memory import MemoryProbe
from rankscope.protocol.messages import LateValues, ProbeFault, Raised, StepRecord

Answer = TypeVar("Answer")

COST_STEPS = 32
"""The agent's own cost is averaged over this many steps."""


class Observer:
    """Probes, phase machine and outbox of this process's training."""

    clock = staticmethod(time.monotonic)

    def __init__(self, start_step: int = 0) -> None:
        self.thread = threading.get_ident()
        self.phases = Phases(self.clock(), start_step)
        self.start_step = start_step
        self.outbox = Outbox()
        self.urgent: Callable[[], None] = lambda: None
        """Wakes the sending thread; set by whoever runs it."""
        self.on = True
        self.boundary = False
        """Whether this loop calls ``end_step``."""
        self.facts_changed = False
        self.trained = False
        """Whether a step was completed: by then torch.distributed is set up, or never will be."""
        self.spent_s = self.kernel_s = 0.0  # bookkeeping and norm kernels since the beginning
        self._spent_before_s = self._kernel_before_s = 0.0
        self.costs: deque[float] = deque(maxlen=COST_STEPS)
        self.kernel_costs: deque[float] = deque(maxlen=COST_STEPS)
        self._models: list[weakref.ref[Any]] = []
        self._optimizers: list[weakref.ref[Any]] = []
        self.reported: int | None = None  # id of the exception that was sent
        self._looked_at: set[int] = set()
        self.late = LateReader()

        self.probes: dict[str, Probe] = {}
        for kind in catalogue.PROBES:
            self.probes[kind.name] = kind(self)
        self.loader = self._probe(Loader)
        self.loss = self._probe(Loss)
        self.gradnorm = self._probe(GradNormProbe)
        self.memory = self._probe(MemoryProbe)
        self.collectives = self._probe(Collectives)
        self.facts = self._probe(Facts)
        self.step = self._probe(catalogue.StepProbe)
        self._on_model = self.guard(self.facts, self.facts.on_model)
        self._on_output = self.guard(self.loss, self.loss.on_output)
        self._on_backward = self.guard(self.loss, self.loss.on_backward)
        self._on_given = self.guard(self.loss, self.loss.on_given)

    def _probe(self, kind: type[Any]) -> Any:
        return self.probes[kind.name]

    # probes: placing them, and keeping their faults to ourselves

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
        for probe in self.probes.values():
            try:
                probe.uninstall()
            except Exception as error:
                if switch.is_users(error):
                    raise
                self.fault(probe, error)

    def watch(self, model: Any, optimizer: Any) -> None:
        """A further model and optimizer (either may be None), unless they are watched already.

        The first model counts the microbatches, the first optimizer marks the steps.
        """
        models, optimizers = _alive(self._models), _alive(self._optimizers)
        if model is not None and not any(model is one for one in models):
            self._models = [weakref.ref(one) for one in (*models, model)]
            self._watch_model(model)
        if optimizer is not None and not any(optimizer is one for one in optimizers):
            self._optimizers = [weakref.ref(one) for one in (*optimizers, optimizer)]
            self._watch_optimizer(optimizer)

    def _watch_model(self, model: Any) -> None:
        first = self._models[0]() is model
        if first:
            self._on_model(model)
        for probe in self.probes.values():
            self.ask(probe, functools.partial(probe.watch_model, model, first=first))

    def _watch_optimizer(self, optimizer: Any) -> None:
        first = self._optimizers[0]() is optimizer
        for probe in self.probes.values():
            self.ask(probe, functools.partial(probe.watch_optimizer, optimizer, first=first))

    def guard(
        self,
        probe: Probe,
        body: Callable[..., None],
        *,
        adopts: bool = False,
        anywhere: bool = False,
    ) -> Callable[..., None]:
        """``body`` as training may call it: it cannot fail, and its time is counted.

        It does nothing on other threads than the training thread, unless ``anywhere``; where it
        ``adopts``, the thread that calls it becomes the training thread.
        """
        clock = time.perf_counter
        ident = threading.get_ident
        compiling = torch.compiler.is_compiling

        def guarded(*args: Any, **kwargs: Any) -> None:
            # Constant to dynamo, which then traces nothing of the rest and does not break a graph.
            if compiling():
                return
            if not (self.on and probe.on):
                return
            if not anywhere and ident() != self.thread:
                if not adopts:
                    return
                self.thread = ident()
            spent_s, kernel_s, began = self.spent_s, self.kernel_s, clock()
            try:
                body(*args, **kwargs)
            except Exception as error:
                if switch.is_users(error):
                    raise
                self.fault(probe, error)
            # Not added but set: a guarded body may run others, whose time is within its own.
            self.spent_s = spent_s + (clock() - began) - (self.kernel_s - kernel_s)

        return guarded

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
        if not probe.on:
            return
        probe.on = False
        self.outbox.put_urgent(
            ProbeFault, probe=probe.name, error=switch.one_line(error), step=self.phases.snapshot[0]
        )
        self.urgent()

    def kernel_time(self, seconds: float) -> None:
        """``seconds`` of the running hook went into computing a norm, not into bookkeeping."""
        self.kernel_s += seconds

    # what the probes saw

    @property
    def device(self) -> torch.device | None:
        device: torch.device | None = self.facts.device
        return device

    def seen_forward(self, module: Any) -> None:
        """The first model runs: by now its wrappers and its device are final."""
        if id(module) not in self._looked_at:
            self._looked_at.add(id(module))
            self._on_model(module)
            self.facts_changed = True

    def saw_output(self, output: Any) -> None:
        self._on_output(output)

    def saw_backward(self, tensors: Any) -> None:
        self._on_backward(tensors)

    def optimizer_stepped(self, now: float) -> None:
        """The first optimizer stepped: the end of a step where the loop marks none."""
        if not (self.boundary and self.step.on):
            self._completed(self.phases.complete(now), None)

    def end_step(self, loss: Any, tokens: Any) -> None:
        """The loop says that a step ends here. (Guarded by its caller.)"""
        now = self.clock()
        if loss is not None:
            self._on_given(loss)
        if not self.boundary:
            self.boundary = True
            self.facts_changed = True
            if self.phases.fresh:
                # The optimizer's hook has just ended this very step: this is its true end.
                self._completed(self.phases.extend(now), tokens)
                return
        self._completed(self.phases.complete(now), tokens)

    def _completed(self, times: StepTimes, tokens: Any) -> None:
        self.trained = True
        loss = self.ask(self.loss, self.loss.take)
        norm = self.ask(self.gradnorm, self.gradnorm.take)
        late: dict[str, Any] = {}
        if isinstance(loss, torch.Tensor):
            late["loss"], loss = loss, None
        norm_value = norm.value if norm is not None else None
        if isinstance(norm_value, torch.Tensor):
            late["grad_norm"], norm_value = norm_value, None
        self.outbox.put_step(
            StepRecord(
                *times,
                loss=loss,
                tokens=_count(tokens),
                grad_norm=norm_value,
                grad_norm_sharded=norm is not None and norm.sharded,
            )
        )
        if late:
            self.ask(self.loss, lambda: self.late.submit(times.step, late))
        self.read_late()
        self.costs.append(self.spent_s - self._spent_before_s)
        self.kernel_costs.append(self.kernel_s - self._kernel_before_s)
        self._spent_before_s, self._kernel_before_s = self.spent_s, self.kernel_s

    def read_late(self) -> None:
        for step, values in self.ask(self.loss, self.late.poll) or ():
            self.outbox.put_late(LateValues(step, **values))

    def raised(self, error: BaseException) -> None:
        """``error`` is ending this rank. Sent once, however often it passes by."""
        if self.reported == id(error):
            return
        self.reported = id(error)
        snapshot = self.phases.snapshot
        self.outbox.put_urgent(
            Raised,
            **describe(error),
            step=snapshot.step,
            phase=snapshot.phase,
            event_t_s=self.clock(),
        )
        self.urgent()

    def overhead_s(self) -> float | None:
        """Mean bookkeeping a step over the last steps. From any thread."""
        costs = list(self.costs)
        return sum(costs) / len(costs) if costs else None


def _alive(references: "list[weakref.ref[Any]]") -> list[Any]:
    return [thing for thing in (reference() for reference in references) if thing is not None]


def _count(tokens: Any) -> int | None:
    """A token count as a number, where it can be had without waiting for a device."""
    if tokens is None or (isinstance(tokens, torch.Tensor) and tokens.device.type != "cpu"):
        return None
    return max(0, int(tokens))
