"""Seeing a model called, with nothing of ours on the model.

Hooks that are registered on a module travel with it: into a pickle, a deep copy, TorchScript, a
spawned process. So it is the model's class that is given a ``__call__`` around its own, which acts
on the watched models alone. What is copied or saved has no trace of it.
"""

import functools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

Hook = Callable[..., None]


class _Hooks(NamedTuple):
    model: "weakref.ref[Any]"
    before: tuple[Hook, ...] = ()
    after: tuple[Hook, ...] = ()
    outputs: tuple[Hook, ...] = ()


class Calls:
    """The classes that were given a ``__call__``, and the hooks of each watched model."""

    def __init__(self) -> None:
        self._classes: dict[type, _Class] = {}

    def add(
        self,
        model: Any,
        *,
        before: Hook | None = None,
        after: Hook | None = None,
        output: Hook | None = None,
    ) -> Callable[[], None]:
        """Have hooks called when ``model`` is; returns what removes them.

        ``before(model, args)`` and ``after(model, args)`` bracket the call, also one that raises;
        ``output(model, args, output)`` follows one that did not. A hook must not raise.
        """
        kind = type(model)
        owner = next((one for one in kind.__mro__ if one in self._classes), kind)
        known = self._classes.get(owner)
        if known is None:
            known = self._classes[owner] = _Class(owner)
        hooks = known.models.get(id(model)) or _Hooks(known.reference(model))
        known.models[id(model)] = hooks._replace(
            before=hooks.before + ((before,) if before else ()),
            after=hooks.after + ((after,) if after else ()),
            outputs=hooks.outputs + ((output,) if output else ()),
        )
        reference = hooks.model
        return lambda: self._remove(owner, reference, {before, after, output})

    def _remove(self, owner: type, reference: "weakref.ref[Any]", gone: "set[Hook | None]") -> None:
        known = self._classes.get(owner)
        model = reference()
        if known is None:
            return
        if model is not None and id(model) in known.models:
            hooks = known.models[id(model)]
            left = _Hooks(
                hooks.model,
                tuple(hook for hook in hooks.before if hook not in gone),
                tuple(hook for hook in hooks.after if hook not in gone),
                tuple(hook for hook in hooks.outputs if hook not in gone),
            )
            if any(left[1:]):
                known.models[id(model)] = left
            else:
                del known.models[id(model)]
        if not known.models:
            known.restore()
            del self._classes[owner]


class _Class:
    """One class with a ``__call__`` of ours."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.models: dict[int, _Hooks] = {}  # by id; an entry goes when its model does
        self._own = vars(kind).get("__call__")
        self._wrapper = _around(kind, self._own, self.models)
        kind.__call__ = self._wrapper  # type: ignore[method-assign]

    def reference(self, model: Any) -> "weakref.ref[Any]":
        key, models = id(model), self.models
        return weakref.ref(model, lambda _: models.pop(key, None))

    def restore(self) -> None:
        if vars(self.kind).get("__call__") is not self._wrapper:
            return  # another tool's is around ours, which does nothing from now on
        if self._own is None:
            del self.kind.__call__
        else:
            self.kind.__call__ = self._own  # type: ignore[method-assign]


def _around(kind: Any, own: Any, models: dict[int, _Hooks]) -> Any:
    compiling = torch.compiler.is_dynamo_compiling

    def __call__(module: Any, /, *args: Any, **kwargs: Any) -> Any:
        # Constant to dynamo, which then sees the class's own call and nothing else.
        hooks = None if compiling() else models.get(id(module))
        if hooks is None:
            if own is not None:
                return own(module, *args, **kwargs)
            # Looked up anew: a tracer may have put a call of its own in place for a while.
            return super(kind, module).__call__(*args, **kwargs)
        for hook in hooks.before:
            hook(module, args)
        try:
            if own is not None:
                output = own(module, *args, **kwargs)
            else:
                output = super(kind, module).__call__(*args, **kwargs)
        finally:
            for hook in hooks.after:
                hook(module, args)
        for hook in hooks.outputs:
            hook(module, args, output)
        return output

    return functools.update_wrapper(__call__, kind.__call__)
