"""``Agent.batches``: a loader that is timed, and is otherwise the loader itself.

What a program does with its loader works alike with and without rankscope: ``next`` on what is an
iterator, ``len`` where there is a length, attributes, ``isinstance``, pickling.
"""

import copy
from typing import Any

from torch.utils.data import DataLoader

from rankscope.agent.probes.loader import Loader

PASSED_ON = (
    *("__len__", "__length_hint__", "__bool__", "__getitem__", "__setitem__", "__delitem__"),
    *("__contains__", "__reversed__", "__call__", "__enter__", "__exit__", "__add__", "__radd__"),
    *("__or__", "__ror__", "__mul__", "__rmul__", "__eq__", "__ne__", "__lt__", "__le__"),
    *("__gt__", "__ge__", "__hash__", "__repr__", "__str__", "__format__", "__dir__"),
)
"""Looked up by Python on the class: passed on where the wrapped one's class has it."""


def timed(loader: Any, probe: Loader) -> Any:
    """``loader`` with each wait for a batch timed.

    Torch's own, which is timed already, and what is not iterable by ``__iter__`` come back as they
    are.
    """
    if type(loader) is DataLoader or not hasattr(type(loader), "__iter__"):
        return loader
    return _wrap(loader, probe)


class Timed:
    """Passes everything on to what it wraps; ``next`` is timed."""

    __slots__ = ("__weakref__", "_rankscope_probe", "_rankscope_wrapped")

    def __init__(self, wrapped: Any, probe: Loader) -> None:
        object.__setattr__(self, "_rankscope_wrapped", wrapped)
        object.__setattr__(self, "_rankscope_probe", probe)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rankscope_wrapped, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._rankscope_wrapped, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._rankscope_wrapped, name)

    def __iter__(self) -> Any:
        wrapped, probe = self._rankscope_wrapped, self._rankscope_probe
        probe.begin()
        try:
            iterator = iter(wrapped)
        finally:
            probe.end()
        return self if iterator is wrapped else _wrap(iterator, probe)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy, also in another process, is a copy of the wrapped one."""
        return self._rankscope_wrapped.__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Any:
        return copy.deepcopy(self._rankscope_wrapped, memo)

    def __copy__(self) -> Any:
        return copy.copy(self._rankscope_wrapped)


def _next(self: Any) -> Any:
    """Hands a batch on without keeping it alive, as a generator's frame would."""
    self._rankscope_probe.begin()
    try:
        return next(self._rankscope_wrapped)
    except StopIteration:
        self._rankscope_probe.over()
        raise
    finally:
        self._rankscope_probe.end()


_classes: dict[type, type] = {}


def _wrap(wrapped: Any, probe: Loader) -> Any:
    kind = type(wrapped)
    timed_kind = _classes.get(kind)
    if timed_kind is None:
        timed_kind = _classes[kind] = _class_for(kind)
    return timed_kind(wrapped, probe)


def _class_for(kind: type) -> type:
    """A class that can do what ``kind`` can, and is taken for it."""
    members: dict[str, Any] = {"__slots__": (), "__class__": property(lambda self: kind)}
    members |= {name: _passed_on(name) for name in PASSED_ON if hasattr(kind, name)}
    if hasattr(kind, "__next__"):
        members["__next__"] = _next
    if kind.__hash__ is None:
        members["__hash__"] = None
    return type(kind.__name__, (Timed,), members)


def _passed_on(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        wrapped = self._rankscope_wrapped
        return getattr(type(wrapped), name)(wrapped, *args, **kwargs)

    return method
