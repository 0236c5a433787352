"""Where most gradients are looked at: when autograd has accumulated one, before anyone reduces it.

A hook of torch's own on each parameter (``register_post_accumulate_grad_hook``) runs there, before
DDP copies the gradient into a bucket, and whatever else reduces it. It takes no slot of the user's,
changes no bit, and is not copied or pickled with the parameter.

On a CPU a large gradient is measured at once, for it may be gone afterwards; under DDP, where it is
not, when all are there (``deferred``); once it is sure that all stay, one hook serves them
(``together``). Where the call costs more than the reading (small ones; a GPU) a few are held and
measured together. They are not held where that alone keeps them alive, under DDP with bucket views:
a small block that stays between large ones that go takes the allocator's room to put them together
(seen: half as many page faults more).
"""

import functools
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch

from rankscope.agent import events, switch
from rankscope.agent.probes.gradients import measure, together
from rankscope.agent.probes.gradients.deferred import Deferred, can_wait
from rankscope.agent.probes.gradients.ledger import Ledger
from rankscope.agent.probes.gradients.measuring import Measuring
from rankscope.agent.probes.gradients.names import named_parameters
from rankscope.agent.probes.gradients.together import Together
from rankscope.agent.tracing import recorded

SMALL: Final = 1 << 15
"""Elements up to which a gradient on a CPU may be held."""

ORDINARY: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})

_engine: Any = torch.autograd.Variable._execution_engine
_task: Callable[[], int] = torch._C._current_graph_task_id
_compiling = torch.compiler.is_dynamo_compiling
_clock = time.monotonic
_cost = time.thread_time
_no_grad = torch.no_grad
_vector_norm = torch.linalg.vector_norm

_WIDER: Final = measure.WIDER


class Accumulated(Measuring):
    """The hooks on one model's parameters. They hold no parameter and no model alive."""

    def __init__(self, probe: Any, ledger: Ledger) -> None:
        super().__init__(probe, ledger)
        self.hasty = False
        """Gradients are not safe beyond the hook: all are measured at once."""
        self.hasty_once = False
        """The same, in the next backward only."""
        self.holds = True
        """Whether gradients on a CPU stay alive without us."""
        self.wrapper: Callable[[], Any] | None = None
        """DDP's, that the model was called by, held weakly."""
        self.stays = False
        """What was accumulated stays as it is until DDP has waited for the other ranks."""
        self.reduces: Callable[[], bool] = lambda: False
        """Whether gradients are reduced in the backward in work."""
        self.ended: Callable[[], None] = lambda: None
        """Called when a backward has ended and gradients are reduced that should be looked at."""
        self._handles: list[Any] = []
        self._now = (-1, 0, 0)  # of the backward in work: its task, the step's number, microbatch
        self._skips = False  # whether it is not to be looked at
        self._defers = False  # large gradients, until all are there
        self._leaves_out = False  # the same, until something is bad
        self._limit = 0.0  # norms from here on are looked at closely
        self._measured: dict[int, float] = {}
        self.deferred = Deferred()
        self.together = Together()
        self._nests = 0  # backwards within others, when that in work began
        self._nested = False  # a backward within the one in work, or a second one in its microbatch

    # placing

    def place(self, owner: int, name: str, parameter: Any) -> bool:
        """Look at ``parameter`` from now on; False where that cannot be."""
        if parameter.is_meta or not parameter.is_leaf:
            return False
        if self._device is None:
            self._device = parameter.device
        index = self.ledger.index(owner, name)
        bodies = {
            together.SMALL: self.on_small,
            together.LARGE: self.on_gradient,
            together.ODD: self.on_odd,
        }
        hook = functools.partial(bodies[self._kind(parameter)], index)
        self._handles.append(parameter.register_post_accumulate_grad_hook(hook))
        return True

    def _kind(self, parameter: Any) -> int:
        ordinary = (
            parameter.dtype in ORDINARY
            and type(parameter.data) is torch.Tensor
            and parameter.device == self._device
        )
        if not ordinary:
            return together.ODD
        return together.SMALL if parameter.numel() <= SMALL else together.LARGE

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
        self.together.end()
        self._drop()

    def turn(self, owner: int, model: Any) -> bool:
        """A forward of ``model`` begins: may one hook serve all its parameters, or no longer?

        True where a hook is to be placed on each again.
        """
        if self.together.slots:
            if self.together.goes_on():
                return False
            self.remove()
            return True
        if self.together.ready:
            self._bring_together(owner, model)
        return False

    def _bring_together(self, owner: int, model: Any) -> None:
        watched = {
            id(parameter): self.ledger.index(owner, name)
            for name, parameter in named_parameters(model)
            if self.has(parameter)
        }
        slots = together.slots_of(model, watched, self._kind)
        herald = next((slot for slot in slots if slot[2] == self.together.first), None)
        if len(slots) != len(self._handles) or herald is None:
            self.together.failed()
            return
        self.remove()
        self.together.begin(slots)
        module, name, _, _ = herald
        parameter = together.parameter_at(module, name)
        hook = functools.partial(self.on_herald)
        self._handles.append(parameter.register_post_accumulate_grad_hook(hook))

    def gathered(self) -> list[Any]:
        """The parameters whose gradients are looked at together, one hook for them all."""
        return [together.parameter_at(at, name) for at, name, _, _ in self.together.slots]

    def _drop(self) -> None:
        super()._drop()
        self._measured = {}
        self.deferred.take()

    # in backward; none of these may raise but take

    def on_gradient(self, index: int, parameter: Any) -> None:
        if _compiling():
            return
        began = _clock()
        try:
            if _task() != self._now[0]:
                self._begin(index)
            gradient = parameter.grad
            if can_wait(gradient):
                self.together.fired += 1
                if self._defers:
                    self.deferred.add(index, parameter)
                    return
            if self._skips or gradient is None:
                return
            if (
                self._leaves_out
                and self._may_leave_out()
                and not self._strikes([index], [gradient])
            ):
                self.probe.observer.kernel_s += _clock() - began
                return
            if not gradient.is_cpu:
                self._hold(index, gradient)
            elif gradient.is_sparse:
                self._measure_one(index, gradient, self.cast())
            else:
                self._read(index, gradient)
        except Exception as error:
            if switch.is_users(error):
                raise
            self._fault(error)
        self.probe.observer.kernel_s += _clock() - began

    def _read(self, index: int, gradient: torch.Tensor) -> None:
        began_s = _cost()
        with _no_grad():
            norm = _vector_norm(gradient, dtype=_WIDER.get(gradient.dtype)).item()
        self.ledger.turns.took(index, _cost() - began_s)
        if norm < self._limit:  # false for NaN, too
            self._measured[index] = norm
        else:
            self.ledger.saw([index], [gradient], [norm], self.cast())

    def on_herald(self, parameter: Any) -> None:
        """The one hook of a model whose gradients are looked at together."""
        if _compiling():
            return
        began = _clock()
        try:
            if _task() != self._now[0]:
                self._begin()
        except Exception as error:
            if switch.is_users(error):
                raise
            self._fault(error)
        self.probe.observer.kernel_s += _clock() - began

    def _look_together(self) -> None:
        """All gradients are there, each in its parameter's ``grad``."""
        if self._nested:
            self.ledger.partial = True  # a backward around this one may still bring some
            return
        ledger = self.ledger
        indices: list[int] = []
        gradients: list[torch.Tensor] = []
        large: list[tuple[int, torch.Tensor]] = []
        odd: list[tuple[int, Any]] = []
        reduces = self.reduces()
        for at, name, index, kind in self.together.slots:
            parameter = together.parameter_at(at, name)
            # One that is frozen may have an old one.
            trained = parameter is not None and parameter.requires_grad
            gradient = parameter.grad if trained else None
            waits = can_wait(gradient)
            if not waits:
                # One that is not reduced yet may have none, or a view into a bucket; else it was
                # taken away, or another rank's is in it.
                self.together.broken = True
                ledger.partial = ledger.partial or reduces
            if gradient is None or (reduces and not waits):
                continue
            if kind == together.ODD or not waits:
                odd.append((index, gradient))
            elif kind == together.SMALL:
                indices.append(index)
                gradients.append(gradient)
            else:
                large.append((index, gradient))
        glanced = ledger.glance(*_unzipped(large)) if self._leaves_out else []
        norms = measure.values([*gradients, *(piece for _, _, piece in glanced)])
        small = len(gradients)
        cast = self.cast()
        ledger.saw(indices, gradients, norms[:small], cast)
        for index, gradient in odd:
            with _no_grad():
                self._measure_one(index, gradient, cast)
        # Not left out any longer where one of the small ones is bad.
        left_out = self._leaves_out and ledger.leaves_out
        if left_out and not ledger.struck(glanced, norms[small:]):
            ledger.partial = ledger.partial or bool(large)
            return
        for index, gradient in large:
            self._read(index, gradient)

    def _strikes(self, indices: list[int], gradients: list[Any]) -> set[int]:
        """Of large gradients that are left out: those that look as if they had to be read."""
        glanced = self.ledger.glance(indices, gradients)
        return self.ledger.struck(glanced, measure.values([piece for _, _, piece in glanced]))

    def _read_deferred(self, deferred: list[tuple[int, torch.Tensor]]) -> None:
        """All large gradients are there: read them, unless they may be left out in this step."""
        if not deferred:
            return
        left_out = self._leaves_out and self.ledger.leaves_out
        if left_out and not self._strikes(*_unzipped(deferred)):
            self.ledger.partial = True
            return
        for index, gradient in deferred:
            self._read(index, gradient)

    def _may_leave_out(self) -> bool:
        """Whether a large gradient is still not to be read: so until something is bad."""
        if self._skips or not self.ledger.leaves_out:
            self._leaves_out = False
            return False
        self.ledger.partial = True
        return True

    def on_small(self, index: int, parameter: Any) -> None:
        if not self.holds:
            self.on_gradient(index, parameter)
            return
        if _compiling():
            return
        try:
            if _task() != self._now[0]:
                self._begin(index)
            gradient = parameter.grad
            if can_wait(gradient):
                self.together.fired += 1
            if not self._skips and gradient is not None:
                self._hold(index, gradient)
        except Exception as error:
            if switch.is_users(error):
                raise
            self._fault(error)

    def on_odd(self, index: int, parameter: Any) -> None:
        if _compiling():
            return
        try:
            if _task() != self._now[0]:
                self._begin(index)
            gradient = parameter.grad
            if can_wait(gradient):
                self.together.fired += 1
            if gradient is not None and not self._skips:
                with torch.no_grad():
                    self._measure_one(index, gradient, self.cast())
        except Exception as error:
            if switch.is_users(error):
                raise
            self._fault(error)

    def on_flat(self, indices: list[int], sizes: list[int], padding: list[bool], flat: Any) -> None:
        if _compiling():
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
        began = _clock()
        if _task() != self._now[0]:
            self._begin()
        large = any(gradient.numel() > SMALL for gradient in gradients)
        if large and self._leaves_out and self._may_leave_out():
            self._take_small(list(zip(indices, gradients, strict=True)), cast, summed)
        elif not self._skips and gradients:
            began_s = _cost()
            self._measure(indices, gradients, cast, summed)
            if large:
                self.ledger.turns.took(indices[0], _cost() - began_s)
        self.probe.observer.kernel_s += _clock() - began

    def _take_small(
        self, taken: list[tuple[int, torch.Tensor]], cast: torch.dtype | None, summed: bool
    ) -> None:
        """Look at the small ones of ``taken``; at a large one where a glance strikes, or where one
        of those is bad."""
        small = [one for one in taken if one[1].numel() <= SMALL]
        large = [one for one in taken if one[1].numel() > SMALL]
        glanced = self.ledger.glance(*_unzipped(large))
        pieces = [piece for _, _, piece in glanced]
        indices, gradients = _unzipped(small)
        if all(one.is_cpu and one.dtype in ORDINARY for one in gradients):
            norms = measure.values(gradients + pieces)
            self.ledger.saw(indices, gradients, norms[: len(small)], cast, summed)
            norms = norms[len(small) :]
        else:
            self._measure(indices, gradients, cast, summed)
            norms = measure.values(pieces)
        struck = self.ledger.struck(glanced, norms)
        read = [one for one in large if one[0] in struck or not self.ledger.leaves_out]
        if read:
            self._measure(*_unzipped(read), cast, summed)

    def _fault(self, error: Exception) -> None:
        self._drop()
        self._skips, self._defers = True, False
        self.probe.observer.fault(self.probe, error)

    def _begin(self, index: int = -1) -> None:
        """The first gradient of a backward, or of one nested in another: that of ``index``, unless
        one hook serves all."""
        observer = self.probe.observer
        now = (_task(), observer.number, observer.microbatch)
        again = now[1:] == self._now[1:]
        if not again:  # else what is held is of the backward around this one
            self._drop()
            if not self.together.slots:
                self.together.comes_first(index)
        self._nested = again or observer.backward.depth > 1
        self._nests = observer.backward.nested
        self._now = now
        self.together.called()
        self._defers = False
        self._skips = not self.probe.on or recorded()
        if self._skips:
            return
        self._at_once = self.hasty or self.hasty_once
        self._limit = measure.closely(self.cast())
        self.ledger.begin()
        self._leaves_out = self.ledger.leaves_out
        self._defers = self.stays and not self._at_once
        _engine.queue_callback(self._on_end)

    def _on_end(self) -> None:
        began = _clock()
        if self._skips or not self.probe.on:
            return
        observer = self.probe.observer
        try:
            # DDP may have reduced at the end of one within this one.
            self._nested = self._nested or observer.backward.nested != self._nests
            if self.together.slots:
                self._look_together()
            self._measure_held()
            deferred, all_there = self.deferred.take()
            if not all_there:
                self.ledger.partial = True
            self._read_deferred(deferred)
            defers = self._defers or bool(self.together.slots)
            stay = all_there and defers and not self._nested
            self.together.ended(len(self._handles), stay=stay)
            if self._measured:
                self.ledger.norms.update(self._measured)
                self._measured = {}
            self.hasty_once = False
            if self._on_device:
                parts, self._on_device = self._on_device, []
                self.probe.submit(self._now[1], self.ledger.microbatch, parts)
            self.ledger.end()
            if self.ledger.wants_reduced() and self.reduces():
                _engine.queue_callback(self._on_reduced)  # after DDP's own, ordered before
            # From here to the end of the backward DDP waits for the other ranks.
            now = _clock()
            observer.noted.append((events.COMPUTED, now))
            observer.kernel_s += now - began
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


def _unzipped(
    pairs: Iterable[tuple[int, torch.Tensor]],
) -> tuple[list[int], list[torch.Tensor]]:
    known = list(pairs)
    return [index for index, _ in known], [gradient for _, gradient in known]
