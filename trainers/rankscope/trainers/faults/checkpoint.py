"""Faults while a checkpoint is saved, as the rank begins to write its part in the background."""

import errno
import os
import signal
import time
from collections.abc import Callable

from rankscope.trainers.faults.hit import Hit, dwell

PHASE = "writing"

SLOW_S = 60.0
"""So long a slow disk takes for what others do in a moment: until a drill has seen enough."""


def write_fails(hit: Hit) -> None:
    in_save(hit, lambda: refuse(errno.EIO))


def disk_full(hit: Hit) -> None:
    in_save(hit, lambda: refuse(errno.ENOSPC))


def killed_in_save(hit: Hit) -> None:
    in_save(hit, lambda: os.kill(os.getpid(), signal.SIGKILL), sudden=True)


def stopped_in_save(hit: Hit) -> None:
    in_save(hit, lambda: os.kill(os.getpid(), signal.SIGSTOP), sudden=True)


def save_slow(hit: Hit) -> None:
    in_save(hit, lambda: time.sleep(float(hit.spec.where or SLOW_S)))


def refuse(number: int) -> None:
    """What a disk says."""
    raise OSError(number, os.strerror(number))


def in_save(hit: Hit, strike: Callable[[], None], *, sudden: bool = False) -> None:
    """Do ``strike`` as the rank begins to write the checkpoint of the fault's step."""
    kind = hit.fault.kinds[0]

    def on_phase(phase: str, step: int) -> None:
        if (phase, step) != (PHASE, hit.spec.step):
            return
        if sudden:
            dwell()
        # Training has gone on meanwhile: the step is that of the save.
        hit.site.log.write(hit.spec, hit.blamed(), step, kind, {"phase": phase})
        strike()

    if hit.here:
        hit.site.in_save.append(on_phase)
