"""Collectives as they are called: which line of the user's called them, and how long it waited.

``torch.distributed`` calls methods of ``ProcessGroup`` and then ``Work.wait``; those are wrapped,
on their classes. Nobody's ``from torch.distributed import all_reduce`` goes past it, and dynamo,
which knows the functions themselves, is not disturbed. Calls that torch makes on its own account
(FSDP2's, in Python) are not noted, those of DDP's reducer (in C++) never come here: the flight
recorder has them all.
"""

import contextlib
import functools
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from os.path import join
from types import CodeType
from typing import Any, ClassVar

import torch

from rankscope.agent import events, switch
from rankscope.agent.evidence import blackbox, places, recorder, signature
from rankscope.agent.evidence.blackbox import BlackBox
from rankscope.agent.probes.base import Probe

NOTED_S = 0.00005
"""Shorter waits are not worth a note."""

MAX_SOURCES = 512
MAX_KNOWN = 1024

_OURS, _TORCHS, _PACKAGES, _USERS = range(4)

_Known = tuple[str, bytes]
"""Where a call is made, and what is written of it."""


class Issued(Probe):
    name: ClassVar[str] = "issued"
    guarded: ClassVar[tuple[str, ...]] = ("on_call",)

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self.box: BlackBox | None = None
        self._calls: deque[tuple[str, int, str]] = deque(maxlen=MAX_SOURCES)
        self._kinds: dict[CodeType, int] = {}
        self._torchs: set[tuple[CodeType, CodeType]] = set()
        """Pairs of a function of torch.distributed and what of torch's calls it, two frames up."""
        self._known: dict[Any, _Known] = {}
        self._placed: list[tuple[Any, str, Any, Any]] = []
        self._lingers = False
        self._pid = os.getpid()

    def install(self) -> None:
        for other in list(_lingering):
            other.stop()
        while _finished:  # the sentinel may have opened the one of before
            with contextlib.suppress(ValueError):
                _finished.pop().finish(False)
        try:
            from torch._C._distributed_c10d import ProcessGroup, Work
        except ImportError:  # a torch without distributed
            return
        if self.box is None:
            try:
                self.box = BlackBox()
            except (OSError, AttributeError):  # not on this system: the recorder remains
                self.box = None
        called = self.observer.guard(self, self.on_call)
        for method in signature.METHODS:
            if hasattr(ProcessGroup, method):
                self._place(ProcessGroup, method, functools.partial(self._noted, method, called))
        if self.box is not None:
            self.observer.going_on = self.box.went_on
        self._place(Work, "wait", lambda it: _timed(it, self.observer))

    def _place(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        # What the class has is not what it gives: a function of C++ binds its object only there.
        own = vars(owner).get(name)
        if own is not None:
            wrapper = wrap(getattr(owner, name))
            setattr(owner, name, wrapper)
            self._placed.append((owner, name, own, wrapper))

    def linger(self) -> None:
        """Go on writing down calls when the observation ends, as nothing else is left that could.

        Where a rank is that left its loop in order, and then waits for the others in a collective,
        is known from this alone.
        """
        if self.on and self.box is not None and self._placed:
            self._lingers = True
            _lingering.append(self)

    def finished(self, reason: str) -> None:
        """The observation ends; that it did so in order outlives the rank."""
        if self.box is not None and reason == "finished":
            self.box.finish()
            _finished.append(self.box)

    def stop(self) -> None:
        """Linger no more."""
        self._lingers = False
        if self in _lingering:
            _lingering.remove(self)
        self.uninstall()

    def uninstall(self) -> None:
        self.observer.going_on = None
        if self._lingers:
            return
        for owner, name, own, wrapper in self._placed:
            if vars(owner).get(name) is wrapper:
                setattr(owner, name, own)
        self._placed.clear()

    def _noted(self, method: str, called: Callable[..., None], original: Any) -> Any:
        """``original`` with a note made before it."""

        getframe, torchs = sys._getframe, self._torchs

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            # FSDP2 calls dozens of times in a step, through two functions of torch.distributed.
            frame: Any = getframe(1)
            behind = frame.f_back and frame.f_back.f_back
            if not behind or (frame.f_code, behind.f_code) not in torchs:
                (late if probe._lingers else called)(method, self, args, frame)
            return original(self, *args, **kwargs)

        def late(method: str, group: Any, args: Any, frame: Any) -> None:
            try:
                if probe.on and os.getpid() == probe._pid:
                    probe.on_call(0.0, method, group, args, frame)
            except Exception as error:
                probe.on = False
                if switch.is_users(error):
                    raise

        probe = self
        return _named(call, method)

    def on_call(self, now: float, method: str, group: Any, args: Any, frame: Any) -> None:
        """``group.method(*args)`` is about to be called, from ``frame``."""
        caller = self._caller(frame)
        if caller is None:
            return
        try:
            name = group.group_name
        except RuntimeError:  # it has none
            return
        if not name:  # a group built directly, none of the user's
            return
        # What is worked out of a call is kept: a loop makes the same ones again and again.
        key = (caller.f_code, caller.f_lineno, name, method, *_kind_of(args))
        known = self._known.get(key)
        if known is None:
            known = self._learn(key, caller, method, group, args)
        try:
            seq = group._get_sequence_number_for_group() + 1
        except RuntimeError:  # this backend does not count
            seq = -1
        source, body = known
        self._calls.append((name, seq, source))
        if self.box is not None:
            self.box.write(time.time_ns(), seq, body)

    def _learn(self, key: Any, caller: Any, method: str, group: Any, args: Any) -> _Known:
        code = caller.f_code
        place = places.Place(code.co_filename, caller.f_lineno or 0, code.co_name)
        backend, size = signature.backend_of(group, args), int(group.size())
        body = blackbox.encoded(
            blackbox.Written(
                str(group.group_name),
                signature.name(backend, method),
                *signature.sizes_and_dtype(backend, method, args, size),
                str(place),
            )
        )
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        known = self._known[key] = str(place), body
        return known

    def sources(self) -> recorder.Sources:
        """Where the newest calls were made, by group and sequence number. Any thread."""
        return {(group, seq): source for group, seq, source in self._calls.copy()}

    def calls(self) -> list[blackbox.Call]:
        """The newest calls, as they were written down. Any thread."""
        if self.box is None:
            return []
        return [call for call in blackbox.read(self.box.contents()) if call.what.group]

    def _caller(self, frame: Any) -> Any:
        """The user's frame that calls, else the package's; None where torch calls by itself."""
        direct, depth, first = frame, 0, None
        while frame is not None:
            kind = self._kind(frame.f_code)
            if kind == _USERS:
                return frame
            if kind != _OURS and first is None:
                if kind == _TORCHS:
                    if depth == 2:
                        self._torchs.add((direct.f_code, frame.f_code))
                    return None
                first = frame
            frame = frame.f_back
            depth += 1
        return first

    def _kind(self, code: CodeType) -> int:
        kind = self._kinds.get(code)
        if kind is None:
            kind = self._kinds[code] = _kind(code.co_filename)
        return kind


def _kind_of(args: Any) -> tuple[Any, ...]:
    """What makes one call different from another: shapes and element type."""
    shapes: list[Any] = []
    for given in args[:2]:
        while isinstance(given, list | tuple):
            shapes.append(len(given))
            if not given:
                break
            given = given[0]
        if isinstance(given, torch.Tensor):
            shapes += (given.shape, given.dtype)
    return tuple(shapes)


_lingering: list[Issued] = []
_finished: list[BlackBox] = []

_DISTRIBUTED = (
    join("torch", "distributed", "distributed_c10d.py"),  # noqa: PTH118
    join("torch", "distributed", "c10d_logger.py"),  # noqa: PTH118
    join("torch", "utils", "_contextlib.py"),  # noqa: PTH118
    join("typing_extensions.py"),  # noqa: PTH118
)


def _kind(file: str) -> int:
    if file.endswith(_DISTRIBUTED) or places.is_agents(file):
        return _OURS
    if places.is_torchs(file):
        return _TORCHS
    return _USERS if places.is_users(file) else _PACKAGES


def _timed(original: Any, observer: Any) -> Any:
    clock = time.monotonic
    ident = threading.get_ident
    compiling = torch.compiler.is_dynamo_compiling

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling():
            return original(self, *args, **kwargs)
        began = clock()
        try:
            return original(self, *args, **kwargs)
        finally:
            took_s = clock() - began
            if took_s > NOTED_S and observer.on and ident() == observer.thread:
                observer.noted.append((events.WAITED, began, took_s))

    return _named(call, "wait")


def _named(function: Any, name: str) -> Any:
    # pybind11 tells by a frame's name and its first argument that a method written in Python
    # calls what it overrides, and does not call it again.
    function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)
    function.__name__ = function.__qualname__ = name
    return function
