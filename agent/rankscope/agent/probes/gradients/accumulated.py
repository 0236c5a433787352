"""Where most gradients are looked at: when autograd has accumulated one, before anyone reduces it.

A hook of torch's own on each parameter (``register_post_accumulate_grad_hook``) runs there, before
DDP copies the gradient into a bucket, and whatever else reduces it. It takes no slot of the user's,
changes no bit, and is not copied or pickled with the parameter. Norms are taken of a few gradients
at a time, while they are in the cache, and what has been noted lives no longer than those few.
"""

import functools
import time
from collections.abc import Callable
from typing import Any, Final

import torch

from rankscope.agent import events, switch
from rankscope.agent.probes.gradients import measure
from rankscope.agent.probes.gradients.ledger import Ledger
from rankscope.agent.tracing import recorded

MAX_PENDING: Final = 32
MAX_ELEMENTS: Final = 1 << 18
"""Gradients wait for their norm until they are so many, or so large together (1 MiB of fp32)."""

ORDINARY: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})

_engine: Any = torch.autograd.Variable._execution_engine
_task: Callable[[], int] = torch._C._current_graph_task_id
_compiling = torch.compiler.is_dynamo_compiling


class Accumulated:
    """The hooks on one model's parameters. They hold no parameter and no model alive."""

    def __init__(self, probe: Any, ledger: Ledger) -> None:
        self.probe = probe
        self.ledger = ledger
        self.hasty = False
        """Gradients are not safe beyond the hook: norms are taken at once."""
        self.hasty_once = False
        """The same, in the next backward only."""
        self.cast: Callable[[], torch.dtype | None] = lambda: None
        """What the gradients of this backward are about to be cast to."""
        self.reduces: Callable[[], bool] = lambda: False
        """Whether gradients are reduced in the backward in work."""
        self.ended: Callable[[], None] = lambda: None
        """Called when a backward has ended and gradients are reduced that should be looked at."""
        self.not_covered: dict[str, str] = {}
        """Parameters that could not be looked at, and why."""
        self._device: torch.device | None = None
        self._handles: list[Any] = []
        self._now = (-1, 0, 0)
        self._indices: list[int] = []
        self._gradients: list[torch.Tensor] = []
        self._elements = 0
        self._on_device: list[tuple[list[int], torch.Tensor]] = []

    # placing

    def place(self, owner: int, name: str, parameter: Any) -> bool:
        """Look at ``parameter`` from now on; False where that cannot be."""
        if parameter.is_meta or not parameter.is_leaf:
            return False
        if self._device is None:
            self._device = parameter.device
        ordinary = (
            parameter.dtype in ORDINARY
            and type(parameter.data) is torch.Tensor
            and parameter.device == self._device
        )
        hook = functools.partial(
            self.on_gradient if ordinary else self.on_odd, self.ledger.index(owner, name)
        )
        self._handles.append(parameter.register_post_accumulate_grad_hook(hook))
        return True

    def place_flat(
        self, owner: int, flat: Any, names: list[str], sizes: list[int], padding: list[bool]
    ) -> None:
        """Look at a flat parameter: ``sizes`` of its parts, of which those not ``padding`` have
        ``names``."""
        indices = [self.ledger.index(owner, name) for name in names]
        hook = functools.partial(self.on_flat, indices, sizes, padding)
        self._handles.append(flat.register_post_accumulate_grad_hook(hook))

    @staticmethod
    def has(parameter: Any) -> bool:
        """Whether ``parameter`` is looked at already, for whatever model."""
        hooks = parameter._post_accumulate_grad_hooks or {}
        return any(
            isinstance(getattr(getattr(hook, "func", None), "__self__", None), Accumulated)
            for hook in hooks.values()
        )

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._drop()

    def _drop(self) -> None:
        self._indices, self._gradients, self._elements = [], [], 0
        self._on_device = []

    # in backward; none of these may raise but take

    def take(
        self,
        indices: list[int],
        gradients: list[torch.Tensor],
        cast: torch.dtype | None,
        summed: bool = False,
    ) -> None:
        """Look at gradients that are handed over, and will be gone afterwards.

        ``cast``: the type in which they are reduced, where that is another one; ``summed``: they
        were cast to it already, and added up over microbatches.
        """
        if _task() != self._now[0]:
            self._begin()
        if not recorded():
            self._norms_of(indices, gradients, cast, summed)

    def on_gradient(self, index: int, parameter: Any) -> None:
        if _compiling() or not self.probe.on:
            return
        try:
            if _task() != self._now[0]:
                self._begin()
            gradient = parameter.grad
            if gradient is None:
                return
            self._indices.append(index)
            self._gradients.append(gradient)
            self._elements += gradient.numel()
            # A view into DDP's bucket is reduced in place as soon as the bucket is full.
            if (
                self._elements >= MAX_ELEMENTS
                or len(self._indices) >= MAX_PENDING
                or self.hasty
                or self.hasty_once
                or gradient._is_view()
            ):
                self._take_norms()
        except Exception as error:
            if switch.is_users(error):
                raise
            self._fault(error)

    def on_odd(self, index: int, parameter: Any) -> None:
        if _compiling() or not self.probe.on:
            return
        try:
            if _task() != self._now[0]:
                self._begin()
            if parameter.grad is not None and not recorded():
                with torch.no_grad():
                    self._take_one(index, parameter.grad)
        except Exception as error:
            if switch.is_users(error):
                raise
            self._fault(error)

    def on_flat(self, indices: list[int], sizes: list[int], padding: list[bool], flat: Any) -> None:
        if _compiling() or not self.probe.on:
            return
        try:
            gradient = flat.grad
            total = sum(sizes)
            if gradient is None or gradient.dim() != 1 or gradient.numel() < total:
                return
            with torch.no_grad():
                parts = gradient[:total].split(sizes)
            gradients = [part for part, pads in zip(parts, padding, strict=True) if not pads]
            self.take(indices, gradients, None)
        except Exception as error:
            if switch.is_users(error):
                raise
            self._fault(error)

    def _fault(self, error: Exception) -> None:
        self._drop()
        self.probe.observer.fault(self.probe, error)

    def _begin(self) -> None:
        """The first gradient of a backward, or of one nested in another."""
        observer = self.probe.observer
        now = (_task(), observer.number, observer.microbatch)
        if now[1:] != self._now[1:]:  # else what waits is of the backward around this one
            self._drop()
        self._now = now
        self.ledger.begin()
        _engine.queue_callback(self._on_end)

    def _on_end(self) -> None:
        if not self.probe.on:
            return
        try:
            self._take_norms()
            self.hasty_once = False
            if self._on_device:
                parts, self._on_device = self._on_device, []
                self.probe.late.submit(self._now[1], self.ledger.microbatch, parts)
            self.ledger.end()
            if self.ledger.wants_reduced() and self.reduces():
                _engine.queue_callback(self._on_reduced)  # after DDP's own, ordered before
            # From here to the end of the backward DDP waits for the other ranks.
            self.probe.observer.noted.append((events.COMPUTED, time.monotonic()))
        except Exception as error:
            if switch.is_users(error):
                raise
            self._fault(error)

    def _on_reduced(self) -> None:
        try:
            self.ended()
        except Exception as error:
            if switch.is_users(error):
                raise
            self._fault(error)

    def _take_norms(self) -> None:
        indices, gradients = self._indices, self._gradients
        self._indices, self._gradients, self._elements = [], [], 0
        if indices and not recorded():
            self._norms_of(indices, gradients, self.cast())

    def _norms_of(
        self,
        indices: list[int],
        gradients: list[torch.Tensor],
        cast: torch.dtype | None,
        summed: bool = False,
    ) -> None:
        began = time.monotonic()
        with torch.no_grad():
            try:
                norms = torch.stack(measure.norms(gradients))
            except (RuntimeError, TypeError):  # one of them is not what its parameter promised
                for index, gradient in zip(indices, gradients, strict=True):
                    self._take_one(index, gradient)
                return
        if norms.is_cuda:
            self._on_device.append((indices, norms))
        else:
            self.ledger.saw(indices, gradients, norms.tolist(), cast, summed)
        self.probe.observer.kernel_s += time.monotonic() - began

    def _take_one(self, index: int, gradient: Any) -> None:
        tensor = measure.real(gradient)
        if tensor is None:
            self._leave_out(index, f"{gradient.dtype} in layout {gradient.layout}")
        elif tensor.device != self._device:
            self._leave_out(index, f"on {tensor.device}")
        elif tensor.is_cuda:
            self._on_device.append(([index], measure.norm(tensor).reshape(1)))
        else:
            self.ledger.saw([index], [tensor], [float(measure.norm(tensor))], self.cast())

    def _leave_out(self, index: int, why: str) -> None:
        name = self.ledger.names[index]
        if name not in self.not_covered:
            self.not_covered[name] = why
            self.probe.say()
