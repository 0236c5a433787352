"""FSDP2: the gradients of a unit, whole and this rank's own, when they are about to be reduced.

A unit's parameters are sharded before and after, so their own hooks see what was reduced. The place
between is FSDP2's ``foreach_reduce``, which is handed the unsharded gradients, and for microbatches
that reduce nothing the unit's ``post_backward``. Both are private to torch: they are wrapped only
where they look as expected, and a model whose backward does not come by is said not to be covered.
"""

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from rankscope.agent import switch
from rankscope.agent.probes.gradients.accumulated import Accumulated
from rankscope.agent.probes.gradients.names import named_parameters

MODULE = "torch.distributed.fsdp._fully_shard._fsdp_param_group"

_compiling = torch.compiler.is_dynamo_compiling


class Units:
    """The wrappers around FSDP2's functions, once in a process, and whom they tell."""

    def __init__(self) -> None:
        self.watchers: list[UnitWatch] = []
        self._wrapped: list[tuple[Any, str, Any, Any]] = []

    def install(self) -> bool:
        """Whether the wrappers are in place."""
        if self._wrapped:
            return True
        module = sys.modules.get(MODULE)
        group = getattr(module, "FSDPParamGroup", None)
        reduce = getattr(module, "foreach_reduce", None)
        post_backward = getattr(group, "post_backward", None)
        if reduce is None or post_backward is None or not _starts_as_expected(reduce):
            return False
        self._put(module, "foreach_reduce", reduce, self._around_reduce(reduce))
        self._put(group, "post_backward", post_backward, self._around_post_backward(post_backward))
        return True

    def _put(self, place: Any, name: str, original: Any, wrapper: Any) -> None:
        self._wrapped.append((place, name, original, wrapper))
        setattr(place, name, wrapper)

    def uninstall(self) -> None:
        for place, name, original, wrapper in self._wrapped:
            if getattr(place, name) is wrapper:
                setattr(place, name, original)
        self._wrapped.clear()
        self.watchers.clear()

    def _around_reduce(self, original: Any) -> Any:
        @functools.wraps(original)
        def foreach_reduce(
            fsdp_params: Any, unsharded_grads: Any, *args: Any, **kwargs: Any
        ) -> Any:
            if not _compiling():
                for watcher in self.watchers:
                    watcher.about_to_reduce(fsdp_params, unsharded_grads)
            return original(fsdp_params, unsharded_grads, *args, **kwargs)

        return foreach_reduce

    def _around_post_backward(self, original: Any) -> Any:
        @functools.wraps(original)
        def post_backward(group: Any, *args: Any, **kwargs: Any) -> Any:
            if not _compiling():
                for watcher in self.watchers:
                    watcher.before_post_backward(group)
            return original(group, *args, **kwargs)

        return post_backward


def _starts_as_expected(reduce: Any) -> bool:
    return list(inspect.signature(reduce).parameters)[:2] == ["fsdp_params", "unsharded_grads"]


class UnitWatch:
    """The units of one model."""

    def __init__(self, hooks: Accumulated, model: Any) -> None:
        self.hooks = hooks
        self.fired = False
        """Whether a backward has come by."""
        self.reduced = False
        """Whether gradients were reduced in the backward in work."""
        self._owner = id(model)
        self._indices: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.learn(model)

    def learn(self, model: Any) -> set[int]:
        """Know the units of ``model``; the ids of the parameters that they shard."""
        names = {id(parameter): name for name, parameter in named_parameters(model)}
        managed: set[int] = set()
        for one in unit_parameters(model):
            managed.add(id(one.sharded_param))
            name = names.get(id(one.sharded_param))
            if name is not None and one not in self._indices:
                self._indices[one] = self.hooks.ledger.index(self._owner, name)
        return managed

    def take_reduced(self) -> bool:
        """Whether gradients were reduced in the backward that ends; asked once."""
        reduced, self.reduced = self.reduced, False
        return reduced

    def holds(self) -> bool:
        """Whether gradients wait, not reduced, for a later microbatch."""
        for one in self._indices:
            gathered = getattr(one, "_unsharded_param", None)
            if one.unsharded_accumulated_grad is not None:
                return True
            if gathered is not None and gathered.grad is not None:
                return True
        return False

    def about_to_reduce(self, parameters: Any, gradients: Any) -> None:
        """``gradients`` of ``parameters`` are this rank's own; they are cast and reduced next."""
        self._guarded(lambda: self._look(parameters, gradients, reduces=True))

    def before_post_backward(self, group: Any) -> None:
        """A unit's backward has ended: look where nothing will be reduced now."""
        self._guarded(lambda: self._look_unreduced(group))

    def _guarded(self, body: Callable[[], None]) -> None:
        probe = self.hooks.probe
        if not probe.on:
            return
        try:
            body()
        except Exception as error:
            if switch.is_users(error):
                raise
            probe.observer.fault(probe, error)

    def _look_unreduced(self, group: Any) -> None:
        kept = [one for one in group.fsdp_params if hasattr(one, "_unsharded_param")]
        if group.reduce_grads and all(one.unsharded_accumulated_grad is None for one in kept):
            return  # all there is will be looked at when it is reduced
        found = [(one, one._unsharded_param.grad) for one in kept]
        found = [(one, gradient) for one, gradient in found if gradient is not None]
        self._look([one for one, _ in found], [gradient for _, gradient in found])

    def _look(self, parameters: Any, gradients: Any, *, reduces: bool = False) -> None:
        indices: list[int] = []
        tensors: list[torch.Tensor] = []
        cast: torch.dtype | None = None
        accumulated = False
        for one, gradient in zip(parameters, gradients, strict=True):
            index = self._indices.get(one)
            if index is None:
                continue
            tensor = getattr(gradient, "_local_tensor", gradient)
            indices.append(index)
            tensors.append(tensor)
            if one.reduce_dtype not in (None, tensor.dtype):
                cast = one.reduce_dtype
            accumulated = accumulated or tensor.dtype != one._unsharded_param.dtype
        if indices:
            self.fired = True
            self.hooks.take(indices, tensors, cast, accumulated and reduces)
            self.reduced = self.reduced or reduces


def unit_parameters(model: Any) -> Iterable[Any]:
    """What FSDP2 keeps for each parameter that it shards in ``model``."""
    for module in model.modules():
        state_of = getattr(module, "_get_fsdp_state", None)
        if state_of is None:
            continue
        state = state_of()
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:
            groups = [getattr(state, "_fsdp_param_group", None)]
        for group in groups:
            if group is not None:
                yield from group.fsdp_params
