"""The guard around every piece of the agent that runs inside training.

No exception of the agent's own reaches the training code, and none of the training code's is
swallowed. The one hard case is a signal handler of the user's that happens to run, and raises,
while the agent's code is on the stack: it is told by its code object in the traceback.
"""

import signal
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any


def is_users(error: BaseException) -> bool:
    """Whether ``error``, caught around the agent's code, comes from a signal handler instead."""
    if not isinstance(error, Exception):
        return True  # KeyboardInterrupt, SystemExit: never ours
    handlers = _handler_codes()
    return any(code in handlers for code in _codes(error.__traceback__))


def contained(*actions: Callable[[], object]) -> None:
    """Run every one of ``actions``. None is left out because another failed.

    What they raise of their own is dropped; the first exception of the user's is raised at the end.
    """
    users: BaseException | None = None
    for action in actions:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - kept, to be raised once all was done
            if users is None and is_users(error):
                users = error
    if users is not None:
        raise users


def _codes(traceback: TracebackType | None) -> list[CodeType]:
    codes = []
    while traceback is not None:
        codes.append(traceback.tb_frame.f_code)
        traceback = traceback.tb_next
    return codes


def _handler_codes() -> set[CodeType]:
    codes: set[CodeType] = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        if callable(handler):
            for function in (handler, getattr(handler, "__call__", None)):  # noqa: B004
                code = getattr(getattr(function, "__func__", function), "__code__", None)
                if isinstance(code, CodeType):
                    codes.add(code)
    return codes


def one_line(error: BaseException, limit: int = 500) -> str:
    """``Type: message`` on one line, cut to ``limit`` characters."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - an exception whose __str__ fails is still to be reported
        text = "(its message cannot be shown)"
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:limit]
