"""What training calls of ours: it cannot fail, and its time on the training thread is counted.

Where several probes look at one event they share one *entry*. Between two events lies the training
itself, which empties the processor's caches, so that what counts is how many different lines of
code and objects an event touches: the clock, the thread and the counters are looked at once for
all of its probes, and the arguments are three by position, for an argument list made up on the way
costs as much as a probe does.
"""

import itertools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from rankscope.agent import switch
from rankscope.agent.eager import never_compiled

if TYPE_CHECKING:
    from rankscope.agent.observer import Observer
    from rankscope.agent.probes.base import Probe

Body = Callable[[float, Any, Any, Any], None]
"""``body(now, subject, args, kwargs or result)``"""

Part = tuple["Probe", Body]
"""What one probe does at an event."""

Entry = Callable[[Any, Any, Any], bool | None]
"""Called at an event; True where it was none of the loop's, and nothing was done."""


def entry(observer: "Observer", *parts: Part, anywhere: bool = False, eager: bool = False) -> Entry:
    """The parts, one after the other; one that fails switches off its own probe alone.

    ``anywhere``: not only on the training thread. ``eager``: dynamo never gets here.
    """
    clock = time.monotonic
    ident = threading.get_ident
    compiling = torch.compiler.is_dynamo_compiling
    runs = _runs(parts)

    def entered(subject: Any, args: Any, more: Any) -> bool | None:
        # Constant to dynamo, which then traces nothing of the rest and does not break a graph.
        if not eager and compiling():
            return None
        began = clock()
        if not observer.on or not (anywhere or ident() == observer.thread):
            return True
        spent_s, kernel_s = observer.spent_s, observer.kernel_s
        for numbers, run in runs:
            if numbers:
                run_kernel_s, run_s = observer.kernel_s, clock()
            for probe, body in run:
                if probe.on:
                    try:
                        body(began, subject, args, more)
                    except Exception as error:
                        if switch.is_users(error):
                            raise
                        observer.fault(probe, error)
            if numbers:  # set, not added: kernels within have been counted already
                observer.kernel_s = run_kernel_s + clock() - run_s
        took_s = clock() - began
        if observer.kernel_s is not kernel_s:
            took_s -= observer.kernel_s - kernel_s
        # Not added but set: a part may run other entries, whose time is within its own.
        observer.spent_s = spent_s + took_s
        return None

    never_compiled(entered.__code__, within=True)
    return entered


def _runs(parts: tuple[Part, ...]) -> tuple[tuple[bool, tuple[Part, ...]], ...]:
    """The parts in their order, those next to each other together whose time is counted alike."""
    grouped = itertools.groupby(parts, lambda part: bool(getattr(part[0], "numbers", False)))
    return tuple((numbers, tuple(run)) for numbers, run in grouped)


def guard(
    observer: "Observer", probe: "Probe", body: Callable[..., None], *, anywhere: bool = False
) -> Callable[..., None]:
    """One probe's ``body(now, …)``, with whatever arguments it is called with."""
    clock = time.monotonic
    ident = threading.get_ident
    compiling = torch.compiler.is_dynamo_compiling

    def guarded(*args: Any, **kwargs: Any) -> None:
        if compiling():
            return
        began = clock()
        if not (probe.on and observer.on and (anywhere or ident() == observer.thread)):
            return
        spent_s, kernel_s = observer.spent_s, observer.kernel_s
        try:
            body(began, *args, **kwargs)
        except Exception as error:
            if switch.is_users(error):
                raise
            observer.fault(probe, error)
        observer.spent_s = spent_s + (clock() - began) - (observer.kernel_s - kernel_s)

    never_compiled(guarded.__code__, within=True)
    return guarded
