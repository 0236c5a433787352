"""The rank stays where it is for ever, outside any collective, and its peers wait."""

import ctypes
import os
import threading
from collections.abc import Callable

from rankscope.trainers.faults.hit import Hit, Struck, dwell
from rankscope.trainers.faults.truth import place_of

MUTEX_BYTES = 64
"""Room for a ``pthread_mutex_t``, which is 40 bytes on x86-64 and 48 on ARM; zeros are one that
nobody holds."""


def gil_held(hit: Struck) -> None:
    """A deadlock in C, entered without giving the GIL away: no thread of Python runs any more."""

    def strike(phase: str) -> None:
        dwell()
        hit.tell(source=place_of(wait_in_c, "second"), phase=phase)
        wait_in_c()

    hit.in_phase(strike)


def wait_in_c() -> None:
    lock = ctypes.PyDLL(None).pthread_mutex_lock  # PyDLL keeps the GIL, CDLL would not
    mutex = ctypes.create_string_buffer(MUTEX_BYTES)
    lock(mutex)
    lock(mutex)  # the second time waits for the first


def endless_loop(hit: Hit) -> None:
    blocked(hit, loop_for_ever, "while True", lines=2)


def loop_for_ever() -> None:
    turns = 0
    while True:
        turns += 1


def lock(hit: Hit) -> None:
    blocked(hit, take_twice, "second")


def take_twice() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # the second time waits for the first


def blocked_read(hit: Hit) -> None:
    blocked(hit, read_nothing, "os.read")


def read_nothing() -> None:
    reading, _writing = os.pipe()
    os.read(reading, 1)


def blocked_exit(hit: Hit) -> None:
    """The step loop is over for this rank, and it waits for a thread before it leaves."""

    def leave() -> None:
        hit.tell(source=place_of(join_for_ever, ".join()"))
        hit.site.points.leaves = True
        hit.site.at_end.append(join_for_ever)

    if hit.here:
        hit.site.points.once("loop", hit.spec.step, leave)


def join_for_ever() -> None:
    thread = threading.Thread(target=threading.Event().wait, daemon=True)
    thread.start()
    thread.join()


def blocked(hit: Hit, wait: Callable[[], None], line: str, lines: int = 1) -> None:
    """``wait`` on the rank in the phase; ``line`` is the line it is seen at."""

    def strike(phase: str) -> None:
        source = place_of(wait, line, lines)
        hit.tell(source=source, phase=phase, collective=next_collective(hit, phase))
        wait()

    hit.in_phase(strike)


def next_collective(hit: Hit, phase: str) -> str:
    """What the peers wait in: the first collective after that point of the step."""
    if phase in ("data", "optimizer"):
        return "all_reduce"  # of the tokens of the next update
    if hit.sharded and phase == "forward":
        return "all_gather"  # of the next block's parameters
    if hit.sharded:
        return "reduce_scatter"  # of the gradients of the block before
    return "all_reduce"  # of a bucket of gradients
