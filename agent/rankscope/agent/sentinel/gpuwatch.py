"""The thread that talks to NVML, so that a sick driver hangs it and not the watch over deaths.

It has the process's own priority, though its readings could wait: a thread of low priority that is
preempted while it holds the interpreter's lock would hold up the one that times deaths. For the
same reason the process is not niced; it uses less than a hundredth of a core.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rankscope.agent.sentinel import nvml
from rankscope.protocol.messages import GpuSample

INTERVAL_S = 1.0
PATIENCE_S = 5.0
"""NVML answers in milliseconds; without an answer for this long it is said to hang. Its start is
given as long: without persistence mode the driver brings the GPUs up first."""


@dataclass(frozen=True)
class Answer:
    """What NVML said last, and when."""

    t_s: float
    gpus: tuple[GpuSample, ...] = ()
    note: str = ""
    final: bool = False
    """There is no GPU to ask again."""


def present(answer: Answer, now: float) -> tuple[tuple[GpuSample, ...], str]:
    """The readings to report at ``now`` and the note; readings that are too old are not shown.

    The age in the note grows in doubling steps, so that it changes (and travels) seldom.
    """
    silent_s = now - answer.t_s
    if answer.final or silent_s < PATIENCE_S:
        return answer.gpus, answer.note
    shown_s = PATIENCE_S
    while shown_s * 2 <= silent_s:
        shown_s *= 2
    return (), f"NVML has not answered for {shown_s:.0f} s: the driver may hang, see dmesg"


class GpuWatch:
    """Asks NVML once a second in a daemon thread of its own; :meth:`now` never waits."""

    def __init__(self, load: Callable[[], Any] = nvml.load) -> None:
        self._load = load
        self._answer = Answer(time.monotonic(), note="none yet: NVML is starting")
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name="nvml", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; does not wait, since it may hang in the driver."""
        self._end.set()

    def now(self, now: float) -> tuple[tuple[GpuSample, ...], str]:
        """The newest readings and the note."""
        return present(self._answer, now)

    def _work(self) -> None:
        try:
            module = self._load()
            devices = nvml.open_devices(module)
            while not self._end.is_set():
                gpus = tuple(nvml.read(module, device) for device in devices)
                note = nvml.lost_note(module, devices)
                self._answer = Answer(time.monotonic(), gpus, note)
                self._end.wait(INTERVAL_S)
        except nvml.NoGpus as none:
            self._answer = Answer(time.monotonic(), note=str(none), final=True)
        except Exception as error:  # noqa: BLE001 - said in the note; deaths are watched on
            text = f"none: GPU readings failed: {type(error).__name__}: {error}"[:300]
            self._answer = Answer(time.monotonic(), note=text, final=True)
