"""Parameters and the optimizer's state: before an update once something is bad, after it always.

After an update one norm over all parameters tells whether it has spoiled any; where that is dear it
is looked at every second, fourth, … update. When one is spoiled, what went into the update says by
what: its gradient, the optimizer's state, the learning rate, or that it was bad before.
"""

import functools
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from rankscope.agent.probes.base import Probe
from rankscope.agent.probes.numerics import finite
from rankscope.agent.probes.numerics.finite import Trouble
from rankscope.agent.probes.numerics.named import Named
from rankscope.agent.probes.numerics.ondevice import Look, OnDevice, capturing
from rankscope.agent.probes.pace import Pace
from rankscope.agent.tracing import recorded
from rankscope.protocol.messages import Stage

SHARE = 0.0005
FREE_S = 0.0001


class ParameterValues(Probe):
    name: ClassVar[str] = "parameter values"
    guarded: ClassVar[tuple[str, ...]] = ("on_updated",)
    numbers: ClassVar[bool] = True

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self.named = Named()
        self._optimizers: list[weakref.ref[Any]] = []
        self._pace = Pace(share=SHARE, free_s=FREE_S)
        self._device = OnDevice(observer)
        self._looked_in = 0  # number of the step whose parameters were looked at before its update
        self._updated_in = 0
        observer.update_ends.append((self, self.on_updated))
        observer.signs.also.append(functools.partial(observer.ask, self, self.look))

    def watch_model(self, model: Any, *, first: bool) -> None:
        self.named.add_model(model)

    def watch_optimizer(self, optimizer: Any, *, first: bool) -> None:
        self.named.add_optimizer(optimizer)
        self._optimizers.append(weakref.ref(optimizer))

    def tidy(self) -> None:
        self.named.tidy()
        self._optimizers = [one for one in self._optimizers if one() is not None]

    def uninstall(self) -> None:
        self.named = Named()
        self._optimizers.clear()
        self._pace.rest()
        self._device.rest()

    def look(self) -> None:
        """Something is bad in the step in work: was a parameter so before, of what is kept here?"""
        observer = self.observer
        number = observer.number
        if self._looked_in == number or self._updated_in == number:
            return
        if threading.get_ident() != observer.thread:
            return
        self._looked_in = number
        observer.signs.looked(Stage.PARAMETER)
        names, tensors, _ = self.named.read()
        spoiled = finite.suspects([finite.local(tensor) for tensor in tensors])
        for index in spoiled:
            self._tell(Stage.PARAMETER, names[index], finite.local(tensors[index]))
            if not observer.signs.wanted(Stage.OPTIMIZER):
                continue  # looking is dear: once all is bad it would be done to all at every step
            for value, count in self._state_troubles(tensors[index]):
                observer.signs.add(Stage.OPTIMIZER, names[index], value=value, count=count)
                break

    def on_updated(self, now: float, optimizer: Any, args: Any, kwargs: Any) -> None:
        observer = self.observer
        number = self._updated_in = observer.number
        if observer.cuda:
            self._device.end(now)  # what the last look found
        if not (number % self._pace.every == 0 or observer.signs.bad or self._norm_bad()):
            return
        if recorded():
            return
        began_s = time.thread_time()  # other probes' work lies between ``now`` and here
        names, tensors, _ = self.named.read()
        held = [finite.local(tensor) for tensor in tensors]
        spoiled = finite.suspects(held)
        if observer.cuda:
            self._on_device(names, held)
            self._device.end(now)
        else:
            observer.signs.looked(Stage.UPDATED)
        self._pace.took(number, now, time.thread_time() - began_s)
        if spoiled:
            for index in spoiled:
                self._after(names[index], tensors[index])
            observer.signs.publish()

    def _on_device(self, names: tuple[str, ...], tensors: list[Tensor]) -> None:
        """The same for parameters on a CUDA device: their norms are read later."""
        there = [
            (name, tensor)
            for name, tensor in zip(names, tensors, strict=True)
            if tensor.is_cuda and tensor.dtype in finite.FUSED and tensor.numel()
        ]
        if there and not capturing():
            looks = [Look(Stage.UPDATED, name, 0) for name, _ in there]
            with torch.no_grad():
                norms = torch._foreach_norm([tensor for _, tensor in there], 2, torch.float32)
                self._device.vector(looks, torch.stack(norms))

    def _norm_bad(self) -> bool:
        """The norm of the reduced gradient, where it is known, is not finite."""
        found = self.observer.gradnorm.found
        value = found.value if found is not None else 0.0
        return isinstance(value, float) and value - value != 0.0

    def _after(self, name: str, parameter: Any) -> None:
        """``parameter`` is bad after the update: say why, as far as what is left of it tells."""
        signs = self.observer.signs
        if not signs.wanted(Stage.UPDATED):
            signs.add(Stage.UPDATED, name)
            return
        value = finite.trouble(finite.local(parameter))
        if value is None:
            return
        note = ""
        gradient = parameter.grad
        rate = self._rate(parameter)
        if gradient is not None and finite.trouble(finite.local(gradient)) is not None:
            note = "so was its gradient"
        elif gradient is None:
            note = "its gradient is not kept"
        elif rate is not None and rate - rate != 0.0:
            note = f"the learning rate is {rate}"
        else:
            signs.looked(Stage.OPTIMIZER)
            state = next(self._state_troubles(parameter), None)
            if state is not None:
                signs.add(
                    Stage.OPTIMIZER,
                    name,
                    value=state.value,
                    count=state.elements,
                    note="bad after the update, whose gradient was finite",
                )
            elif value.value == "nan" and not signs.has(Stage.PARAMETER):
                # A finite gradient and a finite state make no NaN of a number.
                signs.add(
                    Stage.PARAMETER,
                    name,
                    value=value.value,
                    count=value.elements,
                    note="seen after the update, whose gradient and state were finite",
                )
        signs.add(Stage.UPDATED, name, value=value.value, count=value.elements, note=note)

    def _tell(self, stage: Stage, name: str, tensor: Tensor) -> None:
        signs = self.observer.signs
        if not signs.wanted(stage):
            signs.add(stage, name)
            return
        found = finite.trouble(tensor)
        if found is not None:
            signs.add(stage, name, value=found.value, count=found.elements)

    def _state_troubles(self, parameter: Any) -> Iterator[Trouble]:
        for optimizer in (held() for held in self._optimizers):
            state = optimizer.state.get(parameter) if optimizer is not None else None
            for value in (state or {}).values():
                if isinstance(value, Tensor):
                    found = finite.trouble(finite.local(value))
                    if found is not None:
                        yield found

    def _rate(self, parameter: Any) -> float | None:
        for optimizer in (held() for held in self._optimizers):
            for group in optimizer.param_groups if optimizer is not None else ():
                if any(parameter is one for one in group["params"]):
                    rate = group.get("lr")
                    if isinstance(rate, torch.Tensor):
                        return float(rate) if rate.is_cpu else None
                    return None if rate is None else float(rate)
        return None
