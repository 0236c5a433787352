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
    key = (anywhere, eager, *((_numbers(part), _target(part[1])) for part in parts))
    make = _makers.get(key)
    if make is None:
        make = _makers[key] = _maker([_numbers(part) for part in parts], anywhere, eager)
    entered: Entry = make(observer, _failed, *itertools.chain.from_iterable(parts))
    never_compiled(entered.__code__, within=True)
    return entered


_makers: dict[Any, Callable[..., Entry]] = {}
"""By what is called in an entry."""


def _numbers(part: Part) -> bool:
    return bool(getattr(part[0], "numbers", False))


def _target(body: Any) -> Any:
    """What is the same of a body whenever it is placed."""
    return getattr(body, "__func__", type(body))


def _maker(numbers: list[bool], anywhere: bool, eager: bool) -> Callable[..., Entry]:
    """What makes an entry of as many parts, given observer, ``_failed`` and (probe, body) of each.

    It is written out, not a loop over its parts: the interpreter learns at each place of a function
    what is called there, and where that changes from part to part it goes the long way round every
    time, which with cold caches took longer than the parts. For the same reason no two entries
    share such a function, but those that call the same, so that what was learned is not lost when
    probes are placed again.
    """
    names = [f"probe{at}, body{at}" for at in range(len(numbers))]
    # Constant to dynamo, which then traces nothing of the rest and does not break a graph.
    compiled = [] if eager else ["if compiling(): return None"]
    elsewhere = "not observer.on" + ("" if anywhere else " or ident() != observer.thread")
    lines = [
        *compiled,
        "began = clock()",
        f"if {elsewhere}: return True",
        "spent_s, kernel_s = observer.spent_s, observer.kernel_s",
    ]
    for looks, run in itertools.groupby(range(len(numbers)), numbers.__getitem__):
        if looks:
            lines.append("run_kernel_s, run_s = observer.kernel_s, clock()")
        for at in run:
            lines += [
                f"if probe{at}.on:",
                f"    try: body{at}(began, subject, args, more)",
                f"    except Exception as error: failed(observer, probe{at}, error)",
            ]
        if looks:
            # Set, not added: kernels within have been counted already.
            lines.append("observer.kernel_s = run_kernel_s + clock() - run_s")
    lines += [
        "took_s = clock() - began",
        "if observer.kernel_s is not kernel_s: took_s -= observer.kernel_s - kernel_s",
        # Not added but set: a part may run other entries, whose time is within its own.
        "observer.spent_s = spent_s + took_s",
        "return None",
    ]
    text = [
        f"def make({', '.join(['observer', 'failed', *names])}):",
        "    def entered(subject, args, more):",
        *(f"        {line}" for line in lines),
        "    return entered",
    ]
    space: dict[str, Any] = {
        "clock": time.monotonic,
        "ident": threading.get_ident,
        "compiling": torch.compiler.is_dynamo_compiling,
    }
    # By its file it is known to be ours, wherever stacks are looked at.
    exec(compile("\n".join(text), __file__, "exec"), space)
    made: Callable[..., Entry] = space["make"]
    return made


def _failed(observer: "Observer", probe: "Probe", error: Exception) -> None:
    """Called where ``error`` is being handled."""
    if switch.is_users(error):
        raise
    observer.fault(probe, error)


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
