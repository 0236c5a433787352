"""The rank's process ends or stops, without a word."""

import os
import signal
import threading
from collections.abc import Callable

from rankscope.trainers.faults.hit import Struck, dwell


def sigkill(hit: Struck) -> None:
    suddenly(hit, lambda: os.kill(os.getpid(), signal.SIGKILL))


def sigstop(hit: Struck) -> None:
    suddenly(hit, lambda: os.kill(os.getpid(), signal.SIGSTOP))


def exit0(hit: Struck) -> None:
    """No Python hook runs, as when a library calls ``_exit``."""
    suddenly(hit, lambda: os._exit(0))


def abort(hit: Struck) -> None:
    """As gloo does in a thread of its own when sizes do not match."""
    suddenly(hit, abort_in_thread)


def abort_in_thread() -> None:
    thread = threading.Thread(target=os.abort)
    thread.start()
    thread.join()


def suddenly(hit: Struck, end: Callable[[], None]) -> None:
    def strike(phase: str) -> None:
        dwell()
        hit.tell(phase=phase)
        end()

    hit.in_phase(strike)
