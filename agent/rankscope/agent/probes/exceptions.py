"""The exception that ends a rank: its traceback, where in the user's code, and whose fault."""

import os
import re
import sys
import threading
import traceback
from types import TracebackType
from typing import Any, ClassVar

from rankscope.agent.evidence.places import Place, users_place
from rankscope.agent.probes.base import Probe
from rankscope.protocol import limits
from rankscope.protocol.messages import Phase


class Exceptions(Probe):
    name: ClassVar[str] = "exceptions"
    guarded: ClassVar[tuple[str, ...]] = ("on_exception",)

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._previous: Any = None
        self._hook: Any = None
        self._previous_thread: Any = None
        self._thread_hook: Any = None

    def install(self) -> None:
        saw = self.observer.guard(self, self.on_exception, anywhere=True)
        previous = sys.excepthook

        def hook(kind: type[BaseException], error: BaseException, tb: Any) -> None:
            saw(error)
            previous(kind, error, tb)

        previous_thread = threading.excepthook

        def thread_hook(args: threading.ExceptHookArgs) -> None:
            # Only the training thread's death ends the rank; others are merely passed on.
            if threading.get_ident() == self.observer.thread and args.exc_value is not None:
                saw(args.exc_value)
            previous_thread(args)

        self._previous, self._hook = previous, hook
        self._previous_thread, self._thread_hook = previous_thread, thread_hook
        sys.excepthook = hook
        threading.excepthook = thread_hook

    def uninstall(self) -> None:
        if self._hook is not None and sys.excepthook is self._hook:
            sys.excepthook = self._previous
        if self._thread_hook is not None and threading.excepthook is self._thread_hook:
            threading.excepthook = self._previous_thread
        self._hook = self._previous = self._thread_hook = self._previous_thread = None

    def on_exception(self, now: float, error: BaseException) -> None:
        self.observer.raised(error)


def describe(error: BaseException) -> dict[str, Any]:
    """The fields of ``Raised`` that come from the exception itself."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-100))
    keep = limits.MAX_TRACEBACK_CHARS
    if len(text) > keep:  # the last frames and the message matter most
        text = "…\n" + text[-(keep - 2) :]
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the user's __str__ may fail; the rest is still worth sending
        message = "(its message cannot be shown)"
    if isinstance(error, SystemExit):
        message = f"sys.exit({error.code!r})"
    fields = {
        "type": type(error).__name__[: limits.MAX_NAME_CHARS],
        "message": message[: limits.MAX_TEXT_CHARS],
        "traceback": text,
        "source": source_of(error.__traceback__)[: limits.MAX_TEXT_CHARS],
        "from_peer": is_from_peer(error),
    }
    phase = phase_of(error.__traceback__)
    return fields if phase is None else fields | {"phase": phase}


_PHASES = (
    (os.path.join("rankscope", "agent", "probes", "loader.py"), "__next__", Phase.DATA),  # noqa: PTH118
    (os.path.join("rankscope", "agent", "probes", "batches.py"), "_next", Phase.DATA),  # noqa: PTH118
    (os.path.join("torch", "utils", "data", "dataloader.py"), "__next__", Phase.DATA),  # noqa: PTH118
    (os.path.join("torch", "nn", "modules", "module.py"), "_wrapped_call_impl", Phase.FORWARD),  # noqa: PTH118
    (os.path.join("torch", "autograd", "__init__.py"), "backward", Phase.BACKWARD),  # noqa: PTH118
    (os.path.join("torch", "optim", "optimizer.py"), "wrapper", Phase.OPTIMIZER),  # noqa: PTH118
)


def phase_of(tb: TracebackType | None) -> Phase | None:
    """In which phase the exception was raised, by the outermost frame of torch that tells.

    The brackets themselves are closed by the time an exception ends the run.
    """
    while tb is not None:
        code = tb.tb_frame.f_code
        for file, function, phase in _PHASES:
            if code.co_name == function and code.co_filename.endswith(file):
                return phase
        tb = tb.tb_next
    return None


def source_of(tb: TracebackType | None) -> str:
    """``file:line in function`` of the innermost frame of the user's own code (see ``places``).

    Failing that, the innermost of all.
    """
    found: list[Place] = []
    while tb is not None:
        code = tb.tb_frame.f_code
        found.append(Place(code.co_filename, tb.tb_lineno, code.co_name))
        tb = tb.tb_next
    found.reverse()
    return str(users_place(found) or found[0]) if found else ""


_PEER = re.compile(
    r"connection (was )?(reset|closed) by|connection refused|timed out connecting|broken pipe"
    r"|socket timeout|timed out waiting|timeout.*collective|collective.*timeout|watchdog"
    r"|remote process exited|ncclremoteerror|ncclsystemerror|no pending recv|wait timeout"
    r"|application timeout caused pair closure|failed to recv|peer.*(left|gone|died)",
    re.IGNORECASE | re.DOTALL,
)
_COMMUNICATION = re.compile(r"gloo|nccl|c10d|tcpstore|process ?group|\[rank\s*\d+\]", re.IGNORECASE)


def is_from_peer(error: BaseException) -> bool:
    """Whether ``error`` says that another rank (or the way to it) went away.

    Both must hold: the words of a lost peer, and that a collective said them (in its words, or
    because torch.distributed is on the stack). A dataset's own "connection reset" is the rank's.
    """
    if not isinstance(error, RuntimeError):
        return False
    text = str(error)
    if not _PEER.search(text):
        return False
    if type(error).__name__.startswith("Dist") or _COMMUNICATION.search(text):
        return True
    tb = error.__traceback__
    while tb is not None:
        if f"{os.sep}torch{os.sep}distributed{os.sep}" in tb.tb_frame.f_code.co_filename:
            return True
        tb = tb.tb_next
    return False
