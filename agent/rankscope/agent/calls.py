"""Seeing a model called, with nothing of ours on the model.

Hooks that are registered on a module travel with it: into a pickle, a deep copy, TorchScript, a
spawned process. So it is the model's class that is given a ``__call__`` around its own, which acts
on the watched models alone. What is copied or saved has no trace of it.
"""

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from rankscope.agent import eager
from rankscope.agent.guards import Entry, Part

Hook = Callable[..., None]

Note = Callable[[Any, Any], None]
"""``note(args, output)``"""


class _Hooks(NamedTuple):
    """Of one model: the parts in their order, and the two entries made of them."""

    model: "weakref.ref[Any]"
    begins: tuple[Part, ...]
    ends: tuple[Part, ...]
    begin: Entry
    end: Entry


class _Note(NamedTuple):
    """Of a module that is not watched itself, within one that is."""

    model: "weakref.ref[Any]"
    note: Note


class Removal:
    """Ends what was placed on one model or module."""

    __slots__ = ("_model", "_remove")

    def __init__(self, model: "weakref.ref[Any]", remove: Callable[[], None]) -> None:
        self._model = model
        self._remove = remove

    @property
    def gone(self) -> bool:
        """Whether the model is: there is nothing left to end, but for what its class was given."""
        return self._model() is None

    def __call__(self) -> None:
        self._remove()


def of_the_living(removals: Iterable[Removal]) -> list[Removal]:
    """Those of models that are alive. The others are done with."""
    left = []
    for removal in removals:
        if removal.gone:
            removal()
        else:
            left.append(removal)
    return left


class Calls:
    """The classes that were given a ``__call__``, and the hooks of each watched model."""

    def __init__(self, entry: Callable[..., Entry]) -> None:
        """``entry`` makes one of parts (``guards.entry``)."""
        self._classes: dict[type, _Class] = {}
        self._entry = entry

    def add(
        self,
        model: Any,
        *,
        begins: Part | None = None,
        ends: Part | None = None,
        before: Hook | None = None,
        output: Hook | None = None,
    ) -> Removal:
        """Have a probe look on when ``model`` is called; returns what ends that.

        ``begins`` is ``(probe, body)`` with ``body(now, model, args, kwargs)``, ``ends`` the same
        with ``body(now, model, args, output)``: they bracket the call, also one that raises, whose
        output is None. ``before(model, args)`` and ``output(model, args, output)`` are hooks made
        by ``Observer.guard``, at the price of an entry of their own.
        """
        if before is not None:
            begins = (_GUARDED, lambda _now, model, args, _kwargs: before(model, args))
        if output is not None:
            ends = (_GUARDED, lambda _now, model, args, result: output(model, args, result))
        owner, known = self._class_of(model)
        hooks = known.models.get(id(model))
        if isinstance(hooks, _Note):
            hooks = self._hooks(hooks.model, (), (_part_of(hooks.note),))
        reference = known.reference(model) if hooks is None else hooks.model
        known.models[id(model)] = self._hooks(
            reference,
            (*(hooks.begins if hooks else ()), *((begins,) if begins else ())),
            (*(hooks.ends if hooks else ()), *((ends,) if ends else ())),
        )
        return Removal(reference, lambda: self._remove(owner, reference, begins, ends))

    def note(self, module: Any, note: Note) -> Removal:
        """Have ``note(args, output)`` called after each call of ``module``; returns what ends that.

        For the many modules inside a model: as little is done around it as can be. It sees to
        threads and its own errors itself, and must not raise.
        """
        owner, known = self._class_of(module)
        hooks = known.models.get(id(module))
        if hooks is None:
            known.models[id(module)] = _Note(known.reference(module), note)
        else:
            self.add(module, ends=_part_of(note))
        reference = known.models[id(module)].model
        return Removal(reference, lambda: self._remove_note(owner, reference, note))

    def _remove_note(self, owner: type, reference: "weakref.ref[Any]", note: Note) -> None:
        known, module = self._classes.get(owner), reference()
        if known is None:
            return
        hooks = known.models.get(id(module)) if module is not None else None
        if isinstance(hooks, _Hooks):
            part = next((one for one in hooks.ends if getattr(one[1], "note", None) is note), None)
            self._remove(owner, reference, None, part)
            return
        if hooks is not None and hooks.note is note:
            del known.models[id(module)]
        self._tidy(owner, known)

    def _class_of(self, model: Any) -> "tuple[type, _Class]":
        kind = type(model)
        owner = next((one for one in kind.__mro__ if one in self._classes), kind)
        known = self._classes.get(owner)
        if known is None:
            known = self._classes[owner] = _Class(owner)
        return owner, known

    def _tidy(self, owner: type, known: "_Class") -> None:
        if not known.models:
            known.restore()
            del self._classes[owner]

    def _hooks(
        self, reference: "weakref.ref[Any]", begins: tuple[Part, ...], ends: tuple[Part, ...]
    ) -> _Hooks:
        return _Hooks(
            reference,
            begins,
            ends,
            self._entry(*begins, eager=True),
            # What began on the training thread ends there.
            self._entry(*ends, anywhere=True, eager=True),
        )

    def _remove(
        self, owner: type, reference: "weakref.ref[Any]", begins: Part | None, ends: Part | None
    ) -> None:
        known = self._classes.get(owner)
        model = reference()
        if known is None:
            return
        if model is not None and id(model) in known.models:
            hooks = known.models[id(model)]
            if isinstance(hooks, _Note):
                return
            left_begins = tuple(part for part in hooks.begins if part is not begins)
            left_ends = tuple(part for part in hooks.ends if part is not ends)
            if left_begins or left_ends:
                known.models[id(model)] = self._hooks(reference, left_begins, left_ends)
            else:
                del known.models[id(model)]
        self._tidy(owner, known)


class _Guarded:
    """In the place of a probe, where the hook itself sees to it."""

    on = True


_GUARDED: Any = _Guarded()


class _NoteBody:
    """A note as the body of a part."""

    def __init__(self, note: Note) -> None:
        self.note = note

    def __call__(self, now: float, model: Any, args: Any, output: Any) -> None:
        self.note(args, output)


def _part_of(note: Note) -> Part:
    return _GUARDED, _NoteBody(note)


class _Class:
    """One class with a ``__call__`` of ours."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.models: dict[int, _Hooks | _Note] = {}  # by id; an entry goes when its model does
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


def _around(kind: Any, own: Any, models: dict[int, _Hooks | _Note]) -> Any:
    compiling = torch.compiler.is_dynamo_compiling

    def __call__(module: Any, /, *args: Any, **kwargs: Any) -> Any:
        # Constant to dynamo, which then sees the class's own call and nothing else.
        hooks = None if compiling() else models.get(id(module))
        if hooks is None:
            if own is not None:
                return own(module, *args, **kwargs)
            # Looked up anew: a tracer may have put a call of its own in place for a while.
            return super(kind, module).__call__(*args, **kwargs)
        if isinstance(hooks, _Note):
            if own is not None:
                output = own(module, *args, **kwargs)
            else:
                output = super(kind, module).__call__(*args, **kwargs)
            if eager.callback() is None:
                hooks.note(args, output)
            return output
        elsewhere = hooks.begin(module, args, kwargs)
        output = None
        try:
            if own is not None:
                output = own(module, *args, **kwargs)
            else:
                output = super(kind, module).__call__(*args, **kwargs)
            return output
        finally:
            if not elsewhere:
                hooks.end(module, args, output)

    eager.never_compiled(__call__.__code__)
    return functools.update_wrapper(__call__, kind.__call__)
